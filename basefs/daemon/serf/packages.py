"""Serf from the system's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass

from basefs.errors import AgentError
from basefs.gossip.binary import OLDEST, find_serf, version_of


@dataclass(frozen=True, slots=True)
class Manager:
    """A package manager: its program, and the commands that install Serf, one after the other."""

    program: str
    commands: tuple[tuple[str, ...], ...]


#: Alpine and Arch have a package `serf` too, which is an HTTP library, so they are not asked.
MANAGERS = (
    Manager(
        "apt-get",
        (("apt-get", "update"), ("apt-get", "install", "-y", "--no-install-recommends", "serf")),
    ),
    Manager("dnf", (("dnf", "install", "-y", "golang-github-hashicorp-serf"),)),
)


def manager() -> Manager | None:
    """The package manager of this system that may have Serf, if this user may install."""
    if os.geteuid() != 0:
        return None
    return next((found for found in MANAGERS if shutil.which(found.program)), None)


def install(found: Manager) -> str:
    """Install Serf; returns the binary.  Raises AgentError, with the last line that the package manager said."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    for command in found.commands:
        try:
            # It may load lists over a slow network first.
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=environment,
                timeout=900.0,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise AgentError(f"{' '.join(command)}: {error}") from None
        if done.returncode != 0:
            said = done.stdout.strip().splitlines() or ["it printed nothing"]
            raise AgentError(f"{' '.join(command)}: exit {done.returncode}: {said[-1]}")
    binary = find_serf()
    if version_of(binary) < OLDEST:
        raise AgentError(f"the Serf of {found.program} is too old")
    return binary
