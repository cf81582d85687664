"""A release of Serf: downloaded, its checksum verified before anything looks into it, and put into its place whole."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import platform
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from basefs.errors import AgentError
from basefs.gossip.binary import OLDEST, dotted, version_of

#: Where the makers publish their releases; the last one with binaries.
URL = "https://releases.hashicorp.com/serf"
VERSION = "0.8.2"
#: SHA-256 of the archives of that version, by platform.  Of the others the published list of checksums is believed,
#: which comes from the same place as the archive and so proves less.
CHECKSUMS = {
    (VERSION, "linux_amd64"): "1977efc7ed44749e1ae6a0f9b4efca3024932187d83eb61de00ba19fd8146596",
    (VERSION, "linux_386"): "1022fec7b0a1e0feda0d733e53f38a1214181e7d57189acd746cd95e92d4a1fb",
}
#: Machine, as the kernel names it -> platform of a release.  There is none for 64-bit ARM, which can run the other.
PLATFORMS = {
    "x86_64": "linux_amd64",
    "i386": "linux_386",
    "i686": "linux_386",
    "armv6l": "linux_arm",
    "armv7l": "linux_arm",
    "aarch64": "linux_arm",
}
#: Bytes of an archive, and of the program in it, at the most.  Version 0.8.2 has 3 and 10 MB.
_MAX_ARCHIVE = 100_000_000
_MAX_PROGRAM = 200_000_000
_CHUNK = 65536

#: Told how many bytes have come, and how many there will be (`None`: unknown).
Progress = Callable[[int, "int | None"], None]


@dataclass(frozen=True, slots=True)
class Release:
    """What to download.

    Attributes:
        url: of the directory that holds a directory for each version.
        version: such as 0.8.2.
        checksum: SHA-256 of the archive, in hex; `None`: the one that is known here, else the one that is published.
    """

    url: str = URL
    version: str = VERSION
    checksum: str | None = None

    @property
    def archive(self) -> str:
        """The name of the archive for this machine.  Raises AgentError if there is none."""
        machine = platform.machine()
        if machine not in PLATFORMS:
            raise AgentError(f"there is no release of Serf for {machine}: build it from its sources, see serf.io")
        return f"serf_{self.version}_{PLATFORMS[machine]}.zip"

    def install(self, directory: Path, progress: Progress) -> str:
        """Put the program into a directory, which is made; returns its path.  Raises AgentError, OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".serf-", dir=directory) as scratch:
            archive = Path(scratch) / "archive"
            wanted = self._checksum()
            found = self._download(archive, progress)
            if found != wanted:
                raise AgentError(
                    f"{self.archive} from {self.url} has a wrong checksum: SHA-256 {found}, expected {wanted}; "
                    "nothing was installed"
                )
            program = _unpack(archive, Path(scratch) / "serf")
            if version_of(str(program)) < OLDEST:
                raise AgentError(f"Serf {self.version} is too old: {dotted(OLDEST)} or later is needed")
            program.rename(directory / "serf")
        return str(directory / "serf")

    def _checksum(self) -> str:
        known = self.checksum or CHECKSUMS.get((self.version, self.archive.removesuffix(".zip").split("_", 2)[2]))
        if known is not None:
            return known.lower()
        name = f"serf_{self.version}_SHA256SUMS"
        with self._open(name) as answer:
            lines = answer.read(100_000).decode("ascii", "replace").splitlines()
        for line in lines:
            checksum, _, file = line.partition(" ")
            if file.strip() == self.archive:
                return checksum.lower()
        raise AgentError(f"{name} has no checksum of {self.archive}: give it with --sha256")

    def _download(self, path: Path, progress: Progress) -> str:
        """Download the archive; returns its SHA-256."""
        digest = hashlib.sha256()
        done = 0
        with self._open(self.archive) as answer, path.open("wb") as file:
            length = answer.headers.get("Content-Length", "")
            total = int(length) if length.isdecimal() else None
            while chunk := _read(answer):
                done += len(chunk)
                if done > _MAX_ARCHIVE:
                    raise AgentError(f"{self.archive} is too large for Serf: more than {_MAX_ARCHIVE} bytes")
                digest.update(chunk)
                file.write(chunk)
                progress(done, total)
        if total is not None and done < total:
            raise AgentError(f"{self.archive} ended after {done} of {total} bytes: try again")
        return digest.hexdigest()

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[http.client.HTTPResponse]:
        url = f"{self.url.rstrip('/')}/{self.version}/{name}"
        try:
            with urllib.request.urlopen(url, timeout=30.0) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            error.close()
            raise AgentError(f"{url}: {error.code} {error.reason}") from None
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise AgentError(f"{url} cannot be downloaded: {reason}; see --url, and --help for other ways") from None


def _read(answer: IO[bytes]) -> bytes:
    try:
        return answer.read(_CHUNK)
    except (http.client.HTTPException, OSError) as error:
        raise AgentError(f"the download broke off: {error}") from None


def _unpack(archive: Path, program: Path) -> Path:
    try:
        with zipfile.ZipFile(archive) as files, files.open("serf") as source, program.open("wb") as target:
            left = _MAX_PROGRAM
            while chunk := source.read(_CHUNK):
                left -= len(chunk)
                if left < 0:
                    raise AgentError(f"the program in the archive has more than {_MAX_PROGRAM} bytes")
                target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise AgentError(f"the archive holds no program serf: {error}") from None
    program.chmod(0o755)
    return program
