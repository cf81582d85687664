"""What the Debian package bundles: pinned with hashes, and listed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from deploy.sbom import bill
from tests.support.project import ROOT

_REQUIREMENTS = ROOT / "deploy" / "requirements.txt"
_PIN = re.compile(r"^([a-z0-9-]+)==([\w.]+)(?: ; .*?)? \\$")


def _pinned() -> dict[str, list[tuple[int, ...]]]:
    found: dict[str, list[tuple[int, ...]]] = {}
    for line in _REQUIREMENTS.read_text().splitlines():
        if (match := _PIN.match(line)) is not None:
            found.setdefault(match[1], []).append(tuple(int(part) for part in match[2].split(".")))
    return found


def test_each_package_is_pinned_with_hashes_and_nothing_else_is_in_the_file() -> None:
    lines = [line for line in _REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    pins = 0
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("    --hash=sha256:"):
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) and before.endswith("\\")
        else:
            assert _PIN.match(line) and not before.endswith("\\"), line
            pins += 1
    assert pins > 10 and lines[-1].startswith("    --hash=")


def test_all_that_setup_asks_for_is_pinned_in_a_version_that_it_allows() -> None:
    text = (ROOT / "setup.py").read_text()
    wanted = re.search(r"install_requires=\[(.*?)\]", text, re.DOTALL)
    fast = re.search(r'"fast": \[(.*?)\]', text)
    assert wanted is not None and fast is not None
    asked = re.findall(r'"([a-z0-9-]+)>=([\d.]+)', wanted[1] + fast[1])
    assert len(asked) == 9
    pinned = _pinned()
    for name, least in asked:
        assert all(version >= tuple(map(int, least.split("."))) for version in pinned[name]), name
    # With 1.2 encoding raises, and patching trusts lengths.
    assert dict(asked)["bsdiff4"] == "1.3"


def test_the_list_names_what_pip_has_installed(tmp_path: Path) -> None:
    def installed(name: str, version: str, **more: str) -> dict[str, object]:
        archive = {"archive_info": {"hashes": {"sha256": "ab" * 32}}, "url": "https://mirror.invalid/secret"}
        return {"metadata": {"name": name, "version": version, **more}, "download_info": archive}

    report = {
        "install": [
            installed("setuptools", "80.0", license="MIT"),
            installed("PyNaCl", "1.6", license="Apache License 2.0\nand its text"),
            installed("bsdiff4", "1.3.2", license_expression="BSD-3-Clause"),
            installed("prometheus_client", "0.26"),
        ]
    }
    (tmp_path / "report").write_text(json.dumps(report))
    command = [sys.executable, "-m", "deploy.sbom", "0.1.0", str(tmp_path / "report"), str(tmp_path / "list")]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    found = json.loads((tmp_path / "list").read_text())
    assert found == bill("0.1.0", report)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.5")
    names = ["pkg:pypi/bsdiff4@1.3.2", "pkg:pypi/prometheus-client@0.26", "pkg:pypi/pynacl@1.6"]
    assert [component["purl"] for component in found["components"]] == names == found["dependencies"][0]["dependsOn"]
    assert found["components"][2]["licenses"] == [{"license": {"name": "Apache License 2.0"}}]
    assert found["components"][0]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    # It says nothing of where the package was built.
    assert "mirror" not in json.dumps(found)
