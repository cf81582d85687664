"""`make saving`: measures each way to save, and its events on another node; writes docs/saving.md.

Two nodes in network namespaces.  A program saves on the first; the second runs `inotifywait` on its mount and `basefs
watch`.  A marker written after each save says when everything before it has arrived.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import tempfile
import threading
from pathlib import Path

from eval.ending import end_cleanly
from eval.saves import FILES, PROGRAMS, Program, prepare
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import COMMAND, Node
from tests.support.wait import wait_until

NAME = "saving"
#: Seconds for a marker to arrive.
PATIENCE = 60.0
#: Seconds for inotify events of a marker; they come after the change itself, or never if the mount does without them.
_INOTIFY_PATIENCE = 10.0

_HEAD = """# The cost of a save

`make saving` writes this page from the real programs (`eval/saves.py`; emacs, dpkg and ansible are replayed step by
step) on two nodes: a program changes a file on one, and the other runs `basefs watch` and `inotifywait -m`.
`tests/fs/test_saving.py` holds the number of entries.

Each save must cost one entry per changed file, and other nodes must see neither a temporary name nor a delete. Backups
such as `file~`, swap files and the like stay on their node.

| program | files changed | entries | changes of the view elsewhere | inotify events elsewhere |
| --- | --- | --- | --- | --- |
"""


class Lines:
    """The lines that a command prints, as they come."""

    def __init__(self, node: Node, command: list[str | Path]) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [*node.prefix(), *command],
            env=node.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    def end(self) -> None:
        """Stop the command."""
        self._process.kill()
        self._process.wait()
        self._thread.join()


def measure(writer: Node, reader: Node, program: Program, scratch: Path) -> tuple[int, list[str], list[str]]:
    """One program: entries, changes of the view and inotify events that the reader's node saw."""
    number = PROGRAMS.index(program)
    here = writer.mountpoint / f"directory{number}"
    there = reader.mountpoint / here.name
    scratch.mkdir()
    prepare(here, program)
    last = there / FILES[program.files - 1]
    wait_until(last.exists, PATIENCE, f"{last} arrives")
    watch = Lines(reader, [COMMAND, "watch", f"{NAME}:/{here.name}", "--json"])
    notify = Lines(reader, ["inotifywait", "-m", "-q", "--format", "%e %f", there])
    try:
        wait_until(lambda: bool(watch.lines), PATIENCE, "the watcher begins")
        _wait_for_inotify(notify)
        before = writer.entries(NAME)
        program.save(here, scratch)
        entries = writer.entries(NAME) - before
        (here / "marker").touch()
        writer.settle(NAME)
        wait_until(lambda: any('"/' + here.name + '/marker"' in line for line in watch.lines), PATIENCE, "the marker")
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: any(" marker" in line for line in notify.lines), _INOTIFY_PATIENCE, "inotify")
    finally:
        watch.end()
        notify.end()
    changes = [item for item in map(json.loads, watch.lines) if "type" in item]
    told = [f"{item['type']} {Path(item['path']).name}" for item in changes]
    return entries, _before_marker(told), _before_marker(notify.lines)


def _wait_for_inotify(notify: Lines) -> None:
    """Until the kernel has the watch: it is in the process's fdinfo, inotify(7)."""
    directory = Path(f"/proc/{notify._process.pid}/fdinfo")
    wait_until(lambda: any("inotify wd" in path.read_text() for path in directory.iterdir()), PATIENCE, "inotifywait")


def _before_marker(lines: list[str]) -> list[str]:
    found = []
    for line in lines:
        if line.endswith(" marker"):
            break
        # What a reader of the directory does is no news.
        if not line.startswith(("OPEN", "ACCESS", "CLOSE_NOWRITE")):
            found.append(line.replace("CLOSE_WRITE,CLOSE ", "CLOSE_WRITE "))
    return found


def main() -> None:
    """Measure all programs and write the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("docs/saving.md"), help="default: docs/saving.md")
    arguments = parser.parse_args()
    end_cleanly()
    rows = []
    with tempfile.TemporaryDirectory(prefix="basefs-saving-") as text, NamespaceNetwork(Path(text), 2) as network:
        writer, reader = network.nodes
        writer.basefs("genkey")
        writer.basefs("bootstrap", NAME, "-i", writer.endpoint, "--open")
        writer.mount(NAME, "--profile", "lan")
        reader.basefs("genkey")
        reader.basefs("get", NAME, writer.endpoint)
        reader.mount(NAME, "--profile", "lan")
        wait_until(lambda: writer.alive(NAME) == 2, PATIENCE, "the nodes see each other")
        for number, program in enumerate(PROGRAMS):
            entries, changes, events = measure(writer, reader, program, Path(text) / f"scratch{number}")
            cells = (program.name, program.files, entries, _list(changes), _list(events))
            row = "| " + " | ".join(map(str, cells)) + " |"
            print(row, flush=True)
            rows.append(row)
    arguments.output.write_text(_HEAD + "\n".join(rows) + "\n")


def _list(lines: list[str]) -> str:
    return ", ".join(lines) or "none"


if __name__ == "__main__":
    main()
