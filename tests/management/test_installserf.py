"""`basefs installserf`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from basefs.daemon.serf.release import VERSION
from basefs.gossip.binary import dotted, find_serf, version_of
from tests.support.commands import Cli
from tests.support.releases import OTHER, publish, web


def script(path: Path, text: str) -> Path:
    """A program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A machine without Serf, and without a package manager."""
    (cli.base / "bin").mkdir()
    monkeypatch.setenv("PATH", str(cli.base / "bin"))
    return cli


@pytest.mark.serf
def test_one_that_is_there_stays(cli: Cli) -> None:
    binary = find_serf()
    version = dotted(version_of(binary))
    assert cli("installserf") == f"{binary} {version}\n"
    assert json.loads(cli("installserf", "--json")) == {"file": binary, "version": version, "how": "found"}


def test_from_a_release(bare: Cli) -> None:
    publish(bare.base / "web", OTHER, b"#!/bin/sh\necho Serf v0.9.9\n")
    target = bare.base / "elsewhere"
    with web(bare.base / "web") as url:
        code, out, err = bare.run("installserf", target, "--url", url, "--version", OTHER)
    assert (code, out) == (0, f"{target}/serf 0.9.9\n")
    assert "downloading serf_0.9.9_" in err and f"{target} is not on PATH" in err
    assert os.access(target / "serf", os.X_OK)
    # Found there the next time.
    code, out, _ = bare.run("installserf", target, "--json")
    assert (code, json.loads(out)["how"]) == (0, "found")


def test_another_version_than_the_one_that_is_there(bare: Cli) -> None:
    there = script(bare.base / "bin" / "serf", "echo Serf v0.8.5")
    publish(bare.base / "web", OTHER, b"#!/bin/sh\necho Serf v0.9.9\n")
    target = bare.base / "elsewhere"
    assert bare("installserf", "--version", "0.8.5") == f"{there} 0.8.5\n"
    with web(bare.base / "web") as url:
        code, out, err = bare.run("installserf", target, "--url", url, "--version", OTHER)
        assert (code, out) == (0, f"{target}/serf 0.9.9\n")
        assert f"uses {there}, which comes first on PATH" in err
        code, out, err = bare.run("installserf", target, "--url", url, "--version", "99.0.0")
        assert (code, out) == (1, "") and "404" in err
    assert "three numbers" in bare.fails("installserf", "--version", "99", code=2)


def test_a_release_that_cannot_be_had(bare: Cli) -> None:
    (bare.base / "web").mkdir()
    with web(bare.base / "web") as url:
        code, out, err = bare.run("installserf", bare.base / "x", "--url", url)
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("basefs: ") and "404" in err
    assert not list((bare.base / "x").iterdir())


@pytest.mark.root
def test_from_packages(bare: Cli) -> None:
    serf = bare.base / "bin" / "serf"
    done = bare.base / "done"
    # As apt-get does: the lists first, then the package, which brings the program.
    lines = (
        f'echo "$@" >> {done}\nif [ "$1" = install ]; then\n'
        f"printf '#!/bin/sh\\necho 0.8.5-dev\\n' > {serf}\n/bin/chmod 755 {serf}\nfi"
    )
    script(bare.base / "bin" / "apt-get", lines)
    code, out, err = bare.run("installserf")
    assert (code, out) == (0, f"{serf} 0.8.5\n")
    assert err == "installing serf with apt-get ...\n"
    assert done.read_text().splitlines() == ["update", "install -y --no-install-recommends serf"]


@pytest.mark.root
def test_packages_that_fail_or_are_too_old(bare: Cli) -> None:
    checksum = publish(bare.base / "web", VERSION, b"#!/bin/sh\necho Serf v0.9.9\n")
    script(bare.base / "bin" / "apt-get", "echo line; echo 'E: Unable to locate package serf'; exit 100")
    with web(bare.base / "web") as url:
        arguments = ("installserf", bare.base / "one", "--url", url, "--sha256", checksum)
        code, _, err = bare.run(*arguments)
        assert code == 0 and "exit 100: E: Unable to locate package serf; downloading a release instead" in err
        # What is asked for by name is not asked of packages.
        code, _, err = bare.run(*arguments[:1], bare.base / "two", *arguments[2:], "--download")
        assert code == 0 and "apt-get" not in err
        script(bare.base / "bin" / "apt-get", "exit 0")
        script(bare.base / "bin" / "serf", "echo Serf v0.6.0")
        code, out, err = bare.run(*arguments[:1], bare.base / "three", *arguments[2:])
        assert code == 0 and "too old" in err and out == f"{bare.base}/three/serf 0.9.9\n"


def test_bad_arguments(cli: Cli) -> None:
    assert "64 hexadecimal digits" in cli.fails("installserf", "--sha256", "abc", code=2)
