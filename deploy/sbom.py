"""The list of what a Debian package bundles, as CycloneDX JSON: `python -m deploy.sbom VERSION REPORT TARGET`.

REPORT is what `pip install --report` has written: names, versions, licences and the hashes of the archives.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

#: Builds the package, and is not in it.
_TOOLS = frozenset({"setuptools", "pip", "wheel"})
#: Of the serial number: the same package has the same list.
_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")


def bill(version: str, report: dict[str, Any]) -> dict[str, Any]:
    """The document for a version of BaseFS that bundles what a report of pip lists."""
    installed = [each for each in report["install"] if each["metadata"]["name"].lower() not in _TOOLS]
    components = sorted((_component(each) for each in installed), key=lambda component: str(component["bom-ref"]))
    own = {
        "type": "application",
        "bom-ref": f"basefs@{version}",
        "name": "basefs",
        "version": version,
        "licenses": [{"license": {"id": "MIT"}}],
    }
    serial = uuid.uuid5(_NAMESPACE, json.dumps([own, components], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [component["bom-ref"] for component in components]}],
    }


def _component(installed: dict[str, Any]) -> dict[str, Any]:
    metadata = installed["metadata"]
    reference = f"pkg:pypi/{metadata['name'].lower().replace('_', '-')}@{metadata['version']}"
    digest = installed["download_info"]["archive_info"]["hashes"]["sha256"]
    component = {
        "type": "library",
        "bom-ref": reference,
        "name": metadata["name"],
        "version": metadata["version"],
        "purl": reference,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }
    licence = metadata.get("license_expression") or metadata.get("license", "").partition("\n")[0]
    if licence:
        component["licenses"] = [{"license": {"name": licence}}]
    return component


def main() -> None:
    """Write the document."""
    version, report, target = sys.argv[1:]
    document = bill(version, json.loads(Path(report).read_text(encoding="utf-8")))
    Path(target).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
