"""`basefs installserf`: see to it that there is a Serf."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import click

from basefs.daemon.serf.program import default_directory, find_installed, install_package, install_release
from basefs.daemon.serf.release import URL, VERSION, Release
from basefs.errors import UsageError
from basefs.management.output import examples, json_option, note, print_json
from basefs.management.progress import transfer_bar


@click.command(
    epilog=examples("basefs installserf", "basefs installserf --download ~/bin", "basefs installserf --json")
)
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--download", is_flag=True, help="Download a release, even if the system has a package.")
@click.option("--url", metavar="URL", envvar="BASEFS_URL", default=URL, show_default=True, help="URL of the releases.")
@click.option(
    "--version",
    metavar="N.N.N",
    help=f"Download this release, unless it is there (default for a download: {VERSION}).",
)
@click.option("--sha256", metavar="HEX", help="The checksum that its archive must have.")
@json_option
def installserf(
    directory: Path | None, download: bool, url: str, version: str | None, sha256: str | None, as_json: bool
) -> None:
    """Find a suitable Serf, or install one, and print its path and version.

    A suitable Serf on PATH is left alone, and used, unless --version asks for another one. Otherwise root installs the
    system's package (apt-get, dnf); where that is not possible, a release is downloaded into DIR (default:
    /usr/local/bin for root, ~/.local/bin for others).

    The checksum of the archive must be that of --sha256, else the one known to this version of BaseFS (for the default
    version on x86), else the one published with the archive.
    """
    if sha256 is not None and (len(sha256) != 64 or set(sha256.lower()) - set("0123456789abcdef")):
        raise UsageError("--sha256 takes 64 hexadecimal digits")
    if version is not None and not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise UsageError(f"--version takes three numbers, as in {VERSION}, not {version!r}")
    target = default_directory() if directory is None else directory.absolute()
    found = find_installed(target, note)
    if found is not None and version not in (None, found.version):
        found = None
    if found is None and not download and version is None:
        found = install_package(note)
    if found is None:
        found = install_release(target, Release(url, version or VERSION, sha256), note, transfer_bar("serf", None))
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        click.echo(f"{found.file} {found.version}")
    first = shutil.which("serf")
    if first is None:
        note(f"{Path(found.file).parent} is not on PATH, where 'basefs mount' looks: add it")
    elif not Path(first).samefile(found.file):
        note(f"'basefs mount' uses {first}, which comes first on PATH: put {Path(found.file).parent} before it")
