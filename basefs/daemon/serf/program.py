"""The Serf program: whether a good one is installed, installing one, and how its commands reach a running agent."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from basefs.daemon.config import Home
from basefs.daemon.serf.release import Progress, Release
from basefs.errors import AgentError
from basefs.gossip.account import Account
from basefs.gossip.binary import OLDEST, commands_of, dotted, find_serf, version_of


@dataclass(frozen=True, slots=True)
class InstalledSerf:
    """A Serf program: its file, its version, and how it got there: found, package or release."""

    file: str
    version: str
    how: str


@dataclass(frozen=True, slots=True)
class SerfCommand:
    """The Serf program, the environment in which its commands reach one agent, and their names; none if unknown."""

    program: str
    environment: dict[str, str]
    names: list[str]


def find_problem() -> str | None:
    """What is wrong with the Serf on PATH; `None` if it is good enough."""
    try:
        binary = find_serf()
    except AgentError:
        return "Serf is not installed"
    try:
        version = version_of(binary)
    except AgentError as error:
        return str(error)
    if version < OLDEST:
        return f"{binary} is version {dotted(version)}, which is too old: {dotted(OLDEST)} or later is needed"
    return None


def default_directory() -> Path:
    """Where a release is installed unless the user names another directory."""
    return Path("/usr/local/bin") if os.geteuid() == 0 else Path.home() / ".local" / "bin"


def find_installed(directory: Path, say: Callable[[str], None]) -> InstalledSerf | None:
    """A good Serf on PATH or in a directory; `say` gets a line about each that is too old."""
    for path in (None, str(directory / "serf")):
        with contextlib.suppress(AgentError):
            binary = find_serf(path)
            version = version_of(binary)
            if version >= OLDEST:
                return InstalledSerf(binary, dotted(version), "found")
            say(f"{binary} is too old")
    return None


def install_package(say: Callable[[str], None]) -> InstalledSerf | None:
    """Install Serf with the system's package manager; `None` where there is none, or it fails, with the reason said."""
    manager = _manager()
    if manager is None:
        return None
    say(f"installing serf with {manager.program} ...")
    try:
        binary = _install_with(manager)
    except AgentError as error:
        say(f"{error}; downloading a release instead")
        return None
    return InstalledSerf(binary, dotted(version_of(binary)), "package")


def install_release(
    directory: Path, release: Release, say: Callable[[str], None], bar: AbstractContextManager[Progress]
) -> InstalledSerf:
    """Download a release into a directory; `bar` shows the progress.  Raises `AgentError`, OSError."""
    say(f"downloading {release.archive} ...")
    with bar as progress:
        binary = release.install(directory, progress)
    return InstalledSerf(binary, dotted(version_of(binary)), "release")


def serf_command(home: Home, name: str) -> SerfCommand:
    """How to run Serf's own commands on the agent of a running filesystem.  Raises `AgentError`."""
    account = Account.find(home.directory(name))
    path = (home.run_directory() / name if account is None else account.directory) / "serf.json"
    try:
        config = json.loads(path.read_text())
        # In the environment: arguments can be read by everybody on the machine.
        environment = {**os.environ, "SERF_RPC_ADDR": config["rpc_addr"], "SERF_RPC_AUTH": config["rpc_auth"]}
    except (OSError, ValueError, KeyError) as error:
        raise AgentError(f"the agent of {name} is just starting: try again ({error})") from None
    program = find_serf()
    return SerfCommand(program, environment, commands_of(program))


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


def _manager() -> Manager | None:
    """The package manager of this system that may have Serf, if this user may install."""
    if os.geteuid() != 0:
        return None
    return next((found for found in MANAGERS if shutil.which(found.program)), None)


def _install_with(found: Manager) -> str:
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
