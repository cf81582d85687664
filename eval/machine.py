"""A machine of one's own for a person at a shell: name, network, processes, /root and /srv, all gone afterwards.

It replays transcripts (docs/tutorial.md): commands run one after the other in one bash on a terminal, so directories,
variables and background jobs stay, and programs print as for a person.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte

#: Columns and lines of the terminal: tables of BaseFS fit, and a page shows them.
_COLUMNS, _LINES = 120, 50
#: Seconds that one command may take before it counts as hanging.
COMMAND_TIMEOUT = 300.0
#: Seconds for all processes of a machine to end.
_END_TIMEOUT = 60.0

#: What no program prints: a command's output ends here (ASCII record separator).
_END = b"\x1e"
#: How bash names a file of commands that it reads; at a prompt it would name itself.
_SCRIPT = re.compile(r"^\S+\.command: line \d+: ", re.MULTILINE)
#: Columns and lines of the screen on which output is read: more than programs know of, so that nothing is broken up.
_SCREEN = (1000, 300)

#: The shell is process 1 of its machine, so everything ends with it.  It reads names of files with commands.
_SHELL = r"""
hostname "$1"
# Mounts of the real machine's filesystems are none of this one's.
awk '$3 == "fuse.basefs" { print $2 }' /proc/mounts | xargs -r -n 1 umount -l
mount -t tmpfs tmpfs /srv && mount --rbind "$3" /root && cd /root || exit
while IFS= read -r -u "$2" file; do
    . "$file" {0}<&-
    printf '\036'
done
"""

_ROOT = Path("/root")
_PROJECT = Path(__file__).parent.parent


def _keep(path: Path, home: Path) -> str:
    """The commands that let a path of the real /root be there on the machine too."""
    if _ROOT not in path.parents:
        return ""
    place = home / path.relative_to(_ROOT)
    place.mkdir(parents=True, exist_ok=True)
    return f"mount --bind {shlex.quote(str(path))} {shlex.quote(str(place))}\n"


class Machine:
    """A machine with a shell; a context manager.  Needs root."""

    def __init__(self, name: str, namespace: str, home: Path) -> None:
        """`namespace`: the network namespace that it lives in; `home`: what it has as /root, made if missing."""
        self.name = name
        home.mkdir(parents=True, exist_ok=True)
        self._script = home.with_name(f"{home.name}.command")
        self._terminal, shell_side = pty.openpty()
        fcntl.ioctl(shell_side, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
        _make_quiet(shell_side)
        reading, self._orders = os.pipe()
        kept = "".join(_keep(path, home) for path in {Path(sys.prefix), Path(sys.base_prefix), _PROJECT})
        isolated = ("--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child")
        shell = kept + _SHELL.replace("{0}", str(reading))
        try:
            self._process = subprocess.Popen(
                [
                    *("nsenter", f"--net=/run/netns/{namespace}", "unshare", *isolated),
                    *("bash", "--norc", "--noprofile", "-c", shell, "bash", name, str(reading), home),
                ],
                stdin=shell_side,
                stdout=shell_side,
                stderr=shell_side,
                pass_fds=[reading],
                env=self._environment(),
                start_new_session=True,
            )
        finally:
            os.close(shell_side)
            os.close(reading)

    def _environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("BASEFS", "PYTEST", "LC_"))}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        # In the language and time zone of the documents.
        return {**kept, "HOME": str(_ROOT), "PATH": path, "TERM": "xterm", "LANG": "C.UTF-8", "TZ": "UTC"}

    def __enter__(self) -> Machine:
        return self

    def run(self, command: str, timeout: float = COMMAND_TIMEOUT) -> str:
        """Type a command; returns what the terminal shows in the end.

        Raises `TimeoutError`, and `OSError` if the shell has ended.
        """
        self._script.write_text(command + "\n")
        os.write(self._orders, f"{self._script}\n".encode())
        shown = b""
        deadline = time.monotonic() + timeout
        while _END not in shown:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{self.name}: {command!r} has not ended after {timeout:g} s; shown: {shown!r}")
            if select.select([self._terminal], [], [], left)[0]:
                shown += os.read(self._terminal, 65536)
        return self._as_read(shown.partition(_END)[0].decode(errors="replace"))

    def _as_read(self, text: str) -> str:
        """What is on the screen in the end: a bar of progress that was erased is not."""
        screen = pyte.Screen(*_SCREEN)
        screen.set_mode(pyte.modes.LNM)
        pyte.Stream(screen).feed(text)
        plain = "\n".join(line.rstrip() for line in screen.display).rstrip()
        return _SCRIPT.sub("bash: ", plain)

    def __exit__(self, *_: object) -> None:
        os.close(self._orders)
        try:
            self._process.wait(_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._terminal)
            with contextlib.suppress(FileNotFoundError):
                self._script.unlink()


def _make_quiet(terminal: int) -> None:
    """A terminal that repeats nothing of what is typed, and leaves the ends of lines alone."""
    attributes = termios.tcgetattr(terminal)
    attributes[1] &= ~termios.ONLCR
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
