"""The encoder: contents made ready for the log before a commit takes the replica's lock.

A content is encoded once, as a delta against the write that it was made on or as a keyframe, and what takes many blocks
is stored before the entry that names it.  A draft that meets a content without an encoding raises `NotEncoded`: the
lock is released, the content is encoded, and the draft is made again.  If the path changes meanwhile, the content is
encoded once more, against the write that the draft needs; if it has changed again by then, the content becomes a
keyframe, which is valid behind any parent, even where the file holds the same content already.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from basefs.errors import IncompleteContent, NoSpace, StoreError, UnreadableContent
from basefs.log import codecs
from basefs.log.blocks import SYNC_BLOCK_DATA, Block, Encoded, Manifest, split
from basefs.log.cache import disk_error
from basefs.log.content import LARGE_CONTENT, BytesContent, Content
from basefs.log.contents import Contents, LoggedContent
from basefs.log.hashes import EntryHash
from basefs.log.lineage import KEYFRAME_AFTER

#: Contents that are encoded under the lock, bytes of the new and the old one together: that takes 2 ms at the most.
_QUICK_DELTA = 16 * 1024
#: The same without an old content.
_QUICK_KEYFRAME = 32 * 1024
#: An encoding of up to this many bytes is made in memory, and stored in one transaction with its entry.
_SMALL = 128 * 1024
#: Writes against which one content is encoded, before it becomes a keyframe.
_MOST_BASES = 2
#: Blocks that are stored in one transaction: at most 1 MiB.
BLOCKS_AT_ONCE = 32
#: Bytes that a commit takes besides the blocks, with room to spare.
_ROOM_FOR_THE_REST = 1024 * 1024


class EncodedFile:
    """An encoding that is too large for memory, in a file without a name, cut into blocks on demand.

    `file` is written first; after `seal` there are blocks.

    Attributes:
        file: where the bytes go.
    """

    def __init__(self, directory: Path | None) -> None:
        """Raises OSError."""
        if directory is not None:
            directory.mkdir(mode=0o700, exist_ok=True)
        # It outlives this process in no case.
        self.file: BinaryIO = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self._size = 0

    def seal(self) -> int:
        """End the writing; returns the number of bytes.  Raises OSError."""
        self.file.flush()
        self._size = os.fstat(self.file.fileno()).st_size
        return self._size

    def read(self) -> bytes:
        """All of it.  Raises OSError."""
        return os.pread(self.file.fileno(), self._size, 0)

    def parts(self) -> Iterator[Block]:
        """The blocks of it, `SYNC_BLOCK_DATA` bytes each.  Raises OSError."""
        for start in range(0, self._size, SYNC_BLOCK_DATA):
            yield Block(os.pread(self.file.fileno(), SYNC_BLOCK_DATA, start))

    def close(self) -> None:
        """Release the file."""
        self.file.close()


class NotEncoded(Exception):
    """A draft needs a content that must be encoded first, without the lock.

    Attributes:
        content: the content.
        base: the write to encode it against; `None` for a keyframe.
    """

    def __init__(self, content: Content, base: EntryHash | None) -> None:
        super().__init__()
        self.content = content
        self.base = base


@dataclass(frozen=True, slots=True)
class EncodedContent:
    """A content ready for the log.

    Attributes:
        encoded: as the entry names it; `None` for an empty content.
        blocks: its blocks, unless there are so many that they are stored already.
        is_stored: whether they are.
    """

    encoded: Encoded | None
    blocks: Sequence[Block] = ()
    is_stored: bool = False


class Encoder:
    """The contents of one commit.  Used by one thread."""

    def __init__(self, contents: Contents, store: Callable[[Sequence[Block]], None]) -> None:
        """`store` puts some blocks into the log, before the entry that names them."""
        self._contents = contents
        self._store = store
        self._done: dict[tuple[bytes, EntryHash | None], EncodedContent] = {}
        self._same: dict[tuple[bytes, EntryHash], bool] = {}
        #: Contents of the log that cannot be read, which is an error of the drafts that need them only.
        self._failed: dict[bytes, StoreError] = {}
        #: The bases that `prepare` was called with, by content.
        self._prepared: dict[bytes, set[EntryHash | None]] = {}

    def prepare(self, content: Content, base: EntryHash | None) -> None:
        """Encode a content against that of the write `base`, or without one, unless both are the same.

        Takes the lock for moments; the caller holds none.  Raises `NoSpace`, `StoreError`.
        """
        try:
            self._prepare(content, base)
        except (IncompleteContent, UnreadableContent) as error:
            self._failed[content.key] = error

    def _prepare(self, content: Content, base: EntryHash | None) -> None:
        self._prepared.setdefault(content.key, set()).add(base)
        if not content.size or (content.key, base) in self._done:
            return
        if base is not None:
            same = self._same[content.key, base] = self._compare(content, base)
            if same:
                return
        self._done[content.key, base] = self._encode(content, base)

    # -- while drafting, under the lock -------------------------------------------------------------------------------

    def encoded(self, content: Content, base: EntryHash | None) -> EncodedContent:
        """A content encoded against that of the write `base`, or a keyframe.

        Raises `NotEncoded`, and `IncompleteContent` or `UnreadableContent` for one of the log that cannot be read.
        """
        if not content.size:
            return EncodedContent(None)
        if content.key in self._failed:
            raise self._failed[content.key]
        found = self._done.get((content.key, base))
        if found is None and self._is_quick(content, base):
            found = self._done[content.key, base] = self._encode(content, base)
        if found is not None:
            return found
        if self._may_prepare(content, base):
            raise NotEncoded(content, base)
        found = self._done.get((content.key, None))
        if found is None:
            raise NotEncoded(content, None)
        return found

    def is_same(self, content: Content, write: EntryHash) -> bool:
        """Whether a content is that of a write entry.  Raises as `encoded`."""
        if content.size != self._contents.size(write):
            return False
        same = self._same.get((content.key, write))
        if same is not None:
            return same
        if content.size <= _QUICK_KEYFRAME and not isinstance(content, LoggedContent):
            try:
                other = self._contents.open_small(write)
            except StoreError:
                # An unreadable content is replaced.
                return False
            if other is not None:
                return other.whole() == content.whole()
        if self._may_prepare(content, write):
            raise NotEncoded(content, write)
        return False

    def _may_prepare(self, content: Content, base: EntryHash | None) -> bool:
        tried = self._prepared.get(content.key, set())
        return base not in tried and len(tried - {None}) < _MOST_BASES

    def _is_quick(self, content: Content, base: EntryHash | None) -> bool:
        if isinstance(content, LoggedContent):
            return False
        if base is None:
            return content.size <= _QUICK_KEYFRAME
        return content.size + self._contents.size(base) <= _QUICK_DELTA and self._contents.is_at_hand(base)

    # -- encoding -----------------------------------------------------------------------------------------------------

    def _compare(self, content: Content, write: EntryHash) -> bool:
        """Whether a content is that of a write; what cannot be read is not, and is replaced."""
        try:
            if content.size != self._contents.size(write):
                return False
            other = self._contents.open(write)
        except StoreError:
            return False
        try:
            return all(left == right for left, right in zip(content.pieces(), other.pieces(), strict=True))
        except StoreError:
            return False
        finally:
            other.close()

    def _encode(self, content: Content, base: EntryHash | None) -> EncodedContent:
        old = None if base is None else self._base(content, base)
        try:
            if content.size <= LARGE_CONTENT and (old is None or old.size <= codecs.MAX_BSDIFF):
                return self._kept(
                    *codecs.encode(content.whole(), b"" if old is None else old.whole(), keyframe=old is None)
                )
            return self._in_file(content, old)
        finally:
            if old is not None:
                old.close()

    def _base(self, content: Content, base: EntryHash) -> Content | None:
        """The content of the write `base`, if a delta against it is a good idea."""
        try:
            lineage = self._contents.lineages.of(base)
            if len(lineage.writes) > KEYFRAME_AFTER or lineage.delta_bytes >= max(content.size, 4096):
                return None
            if max(content.size, self._contents.size(base)) > codecs.MAX_DELTA_CONTENT:
                return None
            old = self._contents.open(base)
            if not isinstance(old, BytesContent):
                old.read(0, 1)
            return old
        except StoreError:
            # A keyframe needs no old content.
            return None

    def _in_file(self, content: Content, old: Content | None) -> EncodedContent:
        try:
            file = EncodedFile(self._contents.cache.directory)
            try:
                tag = codecs.encode_large(content, old, file.file)
                length = file.seal()
                if length <= _SMALL:
                    return self._kept(tag, file.read())
                _check_room(file, length)
                manifest = Manifest(length)
                self._store_all(_told(file.parts(), manifest))
                root = manifest.seal()
                self._store_all(iter(manifest.lists))
                return EncodedContent(Encoded(root, tag, length), is_stored=True)
            finally:
                file.close()
        except OSError as error:
            raise disk_error(error) from None

    def _kept(self, tag: int, encoded: bytes) -> EncodedContent:
        root, blocks = split(encoded)
        name = Encoded(root, tag, len(encoded))
        if len(encoded) <= _SMALL:
            return EncodedContent(name, blocks)
        self._store_all(iter(blocks))
        return EncodedContent(name, is_stored=True)

    def _store_all(self, blocks: Iterator[Block]) -> None:
        while batch := list(islice(blocks, BLOCKS_AT_ONCE)):
            self._store(batch)


def _told(parts: Iterator[Block], manifest: Manifest) -> Iterator[Block]:
    """The parts of a content, which their manifest hears of."""
    for part in parts:
        manifest.add(part.hash)
        yield part


def _check_room(file: EncodedFile, size: int) -> None:
    """Raise `NoSpace` where the log has no room for an encoding: its blocks would be stored in vain, and for ever."""
    disk = os.fstatvfs(file.file.fileno())
    # They are written twice, to the write-ahead log and from there to the database.
    if disk.f_bavail * disk.f_frsize < 2 * size + _ROOM_FOR_THE_REST:
        raise NoSpace(f"the disk has no room for a file that takes {size} bytes in the log: free some space")
