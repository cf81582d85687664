"""`basefs installserf`: see to it that there is a Serf."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import click

from basefs.daemon.serf.program import default_directory, find_installed, install_package, install_release
from basefs.daemon.serf.release import URL, VERSION, Release
from basefs.errors import UsageError
from basefs.management.output import examples, json_option, note, print_json
from basefs.management.progress import transfer_bar

_SHA256_DIGITS = 64


@click.command(
    epilog=examples("basefs installserf", "basefs installserf --download ~/bin", "basefs installserf --json")
)
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--download", is_flag=True, help="Download a release, even if the system has a package.")
@click.option("--url", envvar="BASEFS_URL", default=URL, show_default=True, help="URL of the releases.")
@click.option("--version", default=VERSION, show_default=True, help="The release to download.")
@click.option("--sha256", metavar="HEX", help="The checksum that its archive must have.")
@json_option
def installserf(
    directory: Path | None, download: bool, url: str, version: str, sha256: str | None, as_json: bool
) -> None:
    """Find a suitable Serf, or install one, and print its path and version.

    A suitable Serf on PATH is left alone. Otherwise root installs the system's package (apt-get, dnf); where that is
    not possible, a release is downloaded into DIR (default: /usr/local/bin for root, ~/.local/bin for others).

    The checksum of the archive must be that of --sha256, else the one known to this version of BaseFS (for the default
    version on x86), else the one published with the archive.
    """
    if sha256 is not None and (len(sha256) != _SHA256_DIGITS or set(sha256.lower()) - set("0123456789abcdef")):
        raise UsageError(f"--sha256 takes {_SHA256_DIGITS} hexadecimal digits")
    target = default_directory() if directory is None else directory.absolute()
    found = find_installed(target, _say)
    if found is None and not download:
        found = install_package(_say)
    if found is None:
        found = install_release(target, Release(url, version, sha256), _say, transfer_bar("serf", None))
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        click.echo(f"{found.file} {found.version}")
    if shutil.which("serf") is None:
        note(f"{Path(found.file).parent} is not on PATH, where 'basefs mount' looks: add it")


def _say(text: str) -> None:
    note(text)
