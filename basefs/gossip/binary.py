"""The Serf binary: where it is, and whether it is good enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from basefs.errors import AgentError

Version = tuple[int, int, int]

#: Serf before it has no coordinates, other RPC commands, and bugs that lose members.
OLDEST: Version = (0, 8, 0)
#: A line of its help.
_COMMAND = re.compile(r"^ {4}([a-z][a-z-]*) {2,}\S", re.MULTILINE)
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


def find_serf(path: str | None = None) -> str:
    """The Serf binary: `path` if given, else the one on PATH.  Raises AgentError, saying what to do, without one."""
    found = shutil.which(path or "serf")
    if found is None:
        what = f"{path} is not an executable file" if path else "Serf is not installed"
        raise AgentError(f"{what}: 'basefs installserf' installs it, or 'apt-get install serf'")
    return os.path.abspath(found)


def version_of(binary: str) -> Version:
    """The version that a binary prints.  Raises AgentError if it cannot be run or prints none."""
    # "Serf v0.8.2" or "0.8.2-dev", and lines about its protocols.
    match = _VERSION.search(_run(binary, "version").stdout.partition("\n")[0])
    if match is None:
        raise AgentError(f"{binary} is not Serf: it prints no version")
    major, minor, patch = map(int, match.groups())
    return major, minor, patch


def commands_of(binary: str) -> list[str]:
    """The commands of a binary, as its help lists them; none where that cannot be read."""
    try:
        done = _run(binary, "--help")
    except AgentError:
        return []
    return _COMMAND.findall(done.stdout + done.stderr)


def _run(binary: str, argument: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([binary, argument], capture_output=True, text=True, timeout=30.0, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise AgentError(f"{binary} cannot be run: {error}") from None


def dotted(version: Version) -> str:
    """A version as people write it."""
    return ".".join(map(str, version))
