"""The Serf binary and its version."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.errors import AgentError
from basefs.gossip.binary import OLDEST, dotted, find_serf, version_of


def script(path: Path, text: str) -> str:
    """An executable that prints something."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.serf
def test_the_version_of_the_real_one() -> None:
    assert version_of(find_serf()) >= OLDEST


@pytest.mark.parametrize("line", ["Serf v0.7.12", "0.7.12-dev (abc)", "Serf v0.7.12\nAgent Protocol: 5"])
def test_versions_as_they_are_printed(tmp_path: Path, line: str) -> None:
    assert version_of(script(tmp_path / "serf", f"echo '{line}'")) == (0, 7, 12)
    assert dotted((0, 7, 12)) == "0.7.12"


def test_what_is_no_serf(tmp_path: Path) -> None:
    for text in ("echo hello", "echo hello; echo 0.8.2", "true"):
        with pytest.raises(AgentError, match="is not Serf"):
            version_of(script(tmp_path / "serf", text))
    with pytest.raises(AgentError, match="cannot be run"):
        version_of(str(tmp_path / "missing"))
    (tmp_path / "garbage").write_bytes(b"\x7fELF")
    (tmp_path / "garbage").chmod(0o755)
    with pytest.raises(AgentError, match="cannot be run"):
        version_of(str(tmp_path / "garbage"))
