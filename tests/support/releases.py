"""A release of Serf, on a web server of this machine."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from basefs.daemon.serf.release import Release

OTHER = "0.9.9"


class _Handler(http.server.SimpleHTTPRequestHandler):
    #: Bytes of an archive that are sent, though more were promised; 0: all.
    cut = 0

    def log_message(self, *arguments: object) -> None:
        pass

    def copyfile(self, source: object, outputfile: object) -> None:
        if self.cut and self.path.endswith(".zip"):
            outputfile.write(source.read(self.cut))  # type: ignore[attr-defined]
        else:
            super().copyfile(source, outputfile)  # type: ignore[arg-type]


@contextlib.contextmanager
def web(directory: Path, *, cut: int = 0) -> Iterator[str]:
    """Serve a directory; gives its URL."""
    handler = type("Handler", (_Handler,), {"cut": cut})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(directory)))  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def publish(directory: Path, version: str, program: bytes, *, name: str = "serf", sums: bool = True) -> str:
    """Make a release as its makers do; returns the checksum of its archive."""
    place = directory / version
    place.mkdir(parents=True)
    archive = place / Release(version=version).archive
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr(name, program)
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    if sums:
        text = f"{'0' * 64}  serf_{version}_darwin_amd64.zip\n{checksum}  {archive.name}\n"
        (place / f"serf_{version}_SHA256SUMS").write_text(text)
    return checksum
