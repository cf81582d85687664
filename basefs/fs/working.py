"""Working files: what applications have written and not yet published (design, section 5)."""

from __future__ import annotations

from dataclasses import dataclass

from basefs.errors import TooLarge
from basefs.log.contents import MAX_CONTENT_BYTES
from basefs.view.names import Names
from basefs.view.states import Owner


@dataclass(slots=True)
class WorkingFile:
    """One file that is open for writing on this node.

    Attributes:
        names: its path now; `None` once it was unlinked, or its path given to another file.
        content: all of it.
        mode: permission bits, `None` while they are not changed.
        owner: names of owner and group, `None` while they are not changed.
        mtime: UNIX seconds, `None` while nobody set it since the last write.
        created: whether the log has no entry for it yet.
        dirty: whether it differs from what was last published.
        private: whether it stays on this node for ever: an open file whose name was removed.
        handles: how many open handles write to it.
    """

    names: Names | None
    content: bytearray
    mode: int | None = None
    owner: Owner | None = None
    mtime: int | None = None
    created: bool = False
    dirty: bool = False
    private: bool = False
    handles: int = 0

    @property
    def pending(self) -> bool:
        """Whether it holds anything that the view does not show."""
        return self.created or self.dirty or self.private

    def write(self, data: bytes, offset: int) -> None:
        """Replace or append bytes; a gap is filled with zeros.  Raises `TooLarge`."""
        _check_size(offset + len(data))
        if offset > len(self.content):
            self.content.extend(bytes(offset - len(self.content)))
        self.content[offset : offset + len(data)] = data
        self._touch()

    def truncate(self, length: int) -> None:
        """Cut, or extend with zeros.  Raises `TooLarge`."""
        _check_size(length)
        if length < len(self.content):
            del self.content[length:]
        else:
            self.content.extend(bytes(length - len(self.content)))
        self._touch()

    def _touch(self) -> None:
        self.dirty = True
        self.mtime = None


def _check_size(size: int) -> None:
    if size > MAX_CONTENT_BYTES:
        raise TooLarge(f"a file has up to {MAX_CONTENT_BYTES} bytes")


@dataclass(slots=True)
class Handle:
    """One open file.

    Attributes:
        working: the file that it writes to, or reads what others here are writing; `None` for a plain reader.
        snapshot: for a plain reader the version that it opened, which it keeps.
        writes: whether it may write.
    """

    working: WorkingFile | None
    snapshot: bytes
    writes: bool

    @property
    def content(self) -> bytes | bytearray:
        """What a read sees."""
        return self.snapshot if self.working is None else self.working.content
