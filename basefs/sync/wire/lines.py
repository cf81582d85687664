"""Received bytes, cut into lines."""

from __future__ import annotations

from basefs.errors import RemoteProtocolError
from basefs.sync.wire.limits import MAX_LINE

#: How a line of entries begins.
ENTRIES = b"ENTRIES "
#: Lines that may come between entries which are given to the log together: data, and requests for what the peer lacks,
#: which have nothing to do with what it sends.  A list is compared with the log, so it waits until that has them.
_BETWEEN = (ENTRIES, b"BLOCKS ", b"PATH_REQ ", b"ENTRY_REQ ", b"BLOCK_REQ ", b"CHAIN_REQ ")


class LineBuffer:
    """Bytes that have arrived and were not read as lines yet.

    Costs are linear in the bytes received: the search for a newline never starts over, and consumed bytes are dropped
    only when they are half of the buffer.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0  # where the next line begins
        self._searched = 0  # no newline between _start and here

    def __len__(self) -> int:
        """Bytes held and not yet returned."""
        return len(self._data) - self._start

    @property
    def ready(self) -> bool:
        """Whether `next_line` might return something other than what it returned last."""
        return self._searched < len(self._data)

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        self._data += data

    def next_line(self) -> bytes | None:
        """The next complete line without its newline; None if there is none yet.

        Raises `RemoteProtocolError` as soon as a line is longer than `MAX_LINE`, complete or not.
        """
        end = self._data.find(b"\n", self._searched)
        size = (end if end >= 0 else len(self._data)) - self._start
        if size > MAX_LINE:
            raise RemoteProtocolError(f"a line has at most {MAX_LINE} bytes")
        if end < 0:
            self._searched = len(self._data)
            return None
        line = bytes(self._data[self._start : end])
        self._start = self._searched = end + 1
        if 2 * self._start >= len(self._data):
            del self._data[: self._start]
            self._start = self._searched = 0
        return line


def belongs(line: bytes | None, *, more: bool) -> bool:
    """Whether entries that were gathered may become more behind this line; `more`: an answer with some follows.

    Answers to requests for many small files hold an entry each, and a transaction for each costs more than the entry.
    What an EOF leads to is looked at again at the EOF of the next answer.
    """
    return line is not None and (line.startswith(_BETWEEN) or (more and line == b"EOF"))
