"""What the files of /etc cost: gossip events for each, by codec, and the time of each codec (paper, figures of /etc).

Each file as a new one, which is what the paper has measured, and with a line changed in its middle.
"""

from __future__ import annotations

import lzma
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from basefs.log import codecs
from basefs.log.blocks import GOSSIP_BLOCK_DATA
from eval.lab.plan import Experiment, Plan
from eval.rows import Row, Rows

_TREE = Path("/etc")
#: Larger files are no configuration.
_LARGEST = 1 << 20
#: Files at size 1: all.
_FILES = 10_000

#: (new, old) -> encoded
_Encode = Callable[[bytes, bytes], bytes]

#: Codecs by name, for new files: the paper's, and what BaseFS chooses.
NEW: dict[str, _Encode] = {
    "raw": codecs.STORED.encode,
    "zlib": codecs.ZLIB.encode,
    "lzma": lambda new, _: lzma.compress(new),
    "bsdiff4": lambda new, _: codecs.BSDIFF.encode(new, b""),
    "BaseFS": lambda new, _: codecs.encode(new, b"", keyframe=True)[1],
}
#: The same for a change.
CHANGED: dict[str, _Encode] = {
    "zlib": codecs.ZLIB.encode,
    "bsdiff4": codecs.BSDIFF.encode,
    "zstd": codecs.ZSTD.encode,
    "BaseFS": lambda new, old: codecs.encode(new, old, keyframe=False)[1],
}


def _run(plan: Plan, rows: dict[str, Rows]) -> None:
    found = []
    for number, content in enumerate(_contents(plan.scaled(_FILES, 40))):
        if not rows["etc"].has(change="new", method="raw", file=number):
            found += [_row("new", name, number, encode, content, b"") for name, encode in NEW.items()]
            old, new = content, _with_a_line_changed(content)
            found += [_row("line changed", name, number, encode, new, old) for name, encode in CHANGED.items()]
    rows["etc"].add_all(found)
    for change, methods in (("new", NEW), ("line changed", CHANGED)):
        for method in methods:
            events = [row["events"] for row in found if row["change"] == change and row["method"] == method]
            if events:
                print(f"{change}, {method}: {len(events)} files, {sum(events) / len(events):.2f} events each")


def _contents(most: int) -> Iterator[bytes]:
    for base, directories, names in os.walk(_TREE):
        directories.sort()
        for path in (Path(base, name) for name in sorted(names)):
            if path.is_file() and not path.is_symlink() and 0 < path.stat().st_size <= _LARGEST:
                if most == 0:
                    return
                most -= 1
                yield path.read_bytes()


def _with_a_line_changed(content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    lines[len(lines) // 2] = b"changed = yes\n"
    return b"".join(lines)


def _row(change: str, method: str, file: int, encode: _Encode, new: bytes, old: bytes) -> Row:
    start = time.perf_counter()
    size = len(encode(new, old))
    passed = time.perf_counter() - start
    events = math.ceil(size / GOSSIP_BLOCK_DATA)
    return {
        "change": change,
        "method": method,
        "file": file,
        "bytes": size,
        "events": events,
        "ms": round(passed * 1000, 4),
    }


ETC = Experiment("events and time that the files of /etc take, by codec", {"etc": ("change", "method", "file")}, _run)
