"""`basefs installserf`: see to it that there is a Serf."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from basefs.errors import AgentError, UsageError
from basefs.gossip.binary import OLDEST, dotted, find_serf, version_of
from basefs.management.output import examples, json_option, print_json
from basefs.management.progress import transfer_bar
from basefs.management.serf import packages
from basefs.management.serf.release import URL, VERSION, Release

_SHA256_DIGITS = 64


@click.command(
    epilog=examples("basefs installserf", "basefs installserf --download ~/bin", "basefs installserf --json")
)
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--download", is_flag=True, help="Do not ask the system's packages.")
@click.option("--url", envvar="BASEFS_SERF_URL", default=URL, show_default=True, help="Where releases are.")
@click.option("--version", default=VERSION, show_default=True, help="The release to download.")
@click.option("--sha256", metavar="HEX", help="The checksum that its archive must have.")
@json_option
def installserf(
    directory: Path | None, download: bool, url: str, version: str, sha256: str | None, as_json: bool
) -> None:
    """Find a Serf that is good enough, or install one; prints where it is, and its version.

    One that is on PATH stays. Otherwise it is taken from the system's packages (apt-get, dnf) if root asks for it, and
    if they have none, a release is downloaded into DIR (default: /usr/local/bin for root, ~/.local/bin for others).

    The archive must have the checksum that is known here, which is so for the default version on x86; else the one that
    is published with it, or the one of --sha256.
    """
    if sha256 is not None and (len(sha256) != _SHA256_DIGITS or set(sha256.lower()) - set("0123456789abcdef")):
        raise UsageError(f"--sha256 takes {_SHA256_DIGITS} hexadecimal digits")
    release = Release(url, version, sha256)
    how, binary = _find(directory) or _from_packages(download) or _from_release(directory, release)
    found = dotted(version_of(binary))
    if as_json:
        print_json({"path": binary, "version": found, "how": how})
    else:
        click.echo(f"{binary} {found}")
    if shutil.which("serf") is None:
        click.echo(f"{Path(binary).parent} is not on PATH, where 'basefs mount' looks: add it", err=True)


def _target(directory: Path | None) -> Path:
    if directory is not None:
        return directory.absolute()
    return Path("/usr/local/bin") if os.geteuid() == 0 else Path.home() / ".local" / "bin"


def _find(directory: Path | None) -> tuple[str, str] | None:
    for path in (None, str(_target(directory) / "serf")):
        try:
            binary = find_serf(path)
            if version_of(binary) >= OLDEST:
                return "found", binary
            click.echo(f"{binary} is too old", err=True)
        except AgentError:
            continue
    return None


def _from_packages(download: bool) -> tuple[str, str] | None:
    manager = None if download else packages.manager()
    if manager is None:
        return None
    click.echo(f"installing serf with {manager.program} ...", err=True)
    try:
        return "package", packages.install(manager)
    except AgentError as error:
        click.echo(f"{error}; downloading a release instead", err=True)
        return None


def _from_release(directory: Path | None, release: Release) -> tuple[str, str]:
    target = _target(directory)
    click.echo(f"downloading {release.archive} ...", err=True)
    with transfer_bar("serf", None) as update:
        return "release", release.install(target, update)
