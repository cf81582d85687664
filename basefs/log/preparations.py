"""Preparations: contents made ready for the log while nobody waits for the replica's lock.

A commit drafts its entries under the lock.  Where a draft needs a content encoded and that takes longer than a moment,
the draft is thrown away, the content is encoded without the lock, and the draft is made again: now it finds what it
needs.  A chain of many blocks is stored before the entry that names it, some blocks at a time.

It ends, whatever others do to the path meanwhile:

1. A preparation is found again by its content and the write that it builds on, also if the view has moved on.
2. After `_EXACT_ROUNDS` rounds a keyframe will do, which is valid behind any parent.
   A write of what the file holds already is then no longer noticed.
3. After `_FREE_ROUNDS` rounds what is still missing is made and stored under the lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from basefs.errors import NoSpace, StoreError
from basefs.log import codecs
from basefs.log.blocks import Block, split
from basefs.log.cache import disk_error
from basefs.log.content import LARGE_CONTENT, BytesContent, Content
from basefs.log.contents import Contents
from basefs.log.hashes import HASH_SIZE, BlockHash, EntryHash
from basefs.log.lineage import MAX_DELTAS
from basefs.log.spool import Spool

#: Contents that are encoded under the lock, bytes of the new and the old one together: that takes 2 ms at the most.
_QUICK_DELTA = 16 * 1024
#: The same without an old content.
_QUICK_KEYFRAME = 32 * 1024
#: A chain of up to this many bytes is made in memory, and stored in one transaction with its entry.
_SMALL_CHAIN = 128 * 1024
#: Blocks that are stored in one transaction: at most 1 MiB.
BLOCKS_AT_ONCE = 32
#: Bytes that a commit takes besides the blocks, with room to spare.
_ROOM_FOR_THE_REST = 1024 * 1024
_EXACT_ROUNDS = 2
_FREE_ROUNDS = 4
#: What stands for a chain in a draft that will be thrown away.
_TO_COME = BlockHash(b"\xff" * HASH_SIZE)


@dataclass(slots=True)
class Preparation:
    """A content ready for the log.

    Attributes:
        first: hash of the first block; empty for an empty content.
        blocks: its blocks, unless there are so many that they are stored beforehand.
        spool: those that are.
        stored: whether those are in the log.
    """

    first: BlockHash
    blocks: Sequence[Block] = ()
    spool: Spool | Sequence[Block] | None = None
    stored: bool = False

    def pending(self) -> Iterator[Block]:
        """The blocks that must be stored beforehand."""
        if self.spool is None or self.stored:
            return iter(())
        return self.spool.blocks() if isinstance(self.spool, Spool) else iter(self.spool)


_PLACEHOLDER = Preparation(_TO_COME)


@dataclass(slots=True)
class _Wanted:
    """What a draft did not find."""

    contents: dict[tuple[bytes, EntryHash | None], Content] = field(default_factory=dict)
    comparisons: dict[tuple[bytes, EntryHash], Content] = field(default_factory=dict)
    chains: list[Preparation] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.contents or self.comparisons or self.chains)


class Preparations:
    """What one commit has prepared.  Used by one thread."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._done: dict[tuple[bytes, EntryHash | None], Preparation] = {}
        self._same: dict[tuple[bytes, EntryHash], bool] = {}
        self._wanted = _Wanted()
        self._round = 0
        #: Whether the draft names chains that were stored before it.
        self.large = False

    # -- while drafting, under the lock -------------------------------------------------------------------------------

    def begin(self) -> None:
        """A draft begins."""
        self._wanted = _Wanted()
        self.large = False

    @property
    def complete(self) -> bool:
        """Whether the draft found all that it needed; otherwise it must be made again after `work`."""
        return not self._wanted

    def want(self, content: Content, base: EntryHash | None) -> Preparation:
        """A content encoded against that of the write `base`, or something that stands for it in a useless draft."""
        if not content.size:
            return Preparation(BlockHash(b""))
        found = self._done.get((content.key, base))
        if found is None and self._round >= _EXACT_ROUNDS:
            base = None
            found = self._done.get((content.key, base))
        if found is None:
            if not self._is_quick(content, base) and self._round < _FREE_ROUNDS:
                self._wanted.contents[content.key, base] = content
                return _PLACEHOLDER
            found = self._done[content.key, base] = self._encode(content, base)
        if found.spool is not None:
            self.large = True
            if not found.stored and self._round >= _FREE_ROUNDS:
                return Preparation(found.first, list(found.pending()))
            if not found.stored:
                self._wanted.chains.append(found)
        return found

    def is_same(self, content: Content, write: EntryHash) -> bool:
        """Whether a content is that of a write entry; the answer is no guess only if the draft is `complete`.

        Raises `IncompleteContent`, `DamagedLog`.
        """
        if content.size != self._contents.size(write):
            return False
        if content.size <= _QUICK_KEYFRAME:
            return self._contents.open(write).whole() == content.whole()
        same = self._same.get((content.key, write))
        if same is None and self._round < _EXACT_ROUNDS:
            self._wanted.comparisons[content.key, write] = content
        return bool(same)

    def _is_quick(self, content: Content, base: EntryHash | None) -> bool:
        if base is None:
            return content.size <= _QUICK_KEYFRAME
        return content.size + self._contents.size(base) <= _QUICK_DELTA

    # -- between drafts, without the lock -----------------------------------------------------------------------------

    def work(self, store: Callable[[Sequence[Block]], None]) -> None:
        """Do what the last draft lacked; `store` puts some blocks into the log.

        Raises `NoSpace`, `StoreError`, and what `store` raises.
        """
        wanted = self._wanted
        if wanted.contents or wanted.comparisons:
            self._round += 1
        for (key, write), content in wanted.comparisons.items():
            self._same[key, write] = self._compare(content, write)
        for (key, base), content in wanted.contents.items():
            if base is None or not self._same.get((key, base)):
                self._done[key, base] = self._encode(content, base)
        for chain in wanted.chains:
            try:
                blocks = chain.pending()
                while batch := list(islice(blocks, BLOCKS_AT_ONCE)):
                    store(batch)
            except OSError as error:
                raise disk_error(error) from None
            chain.stored = True

    def _compare(self, content: Content, write: EntryHash) -> bool:
        try:
            other = self._contents.open(write)
        except StoreError:
            # What cannot be read is not the same, and is replaced.
            return False
        try:
            return all(left == right for left, right in zip(content.pieces(), other.pieces(), strict=True))
        except StoreError:
            return False
        finally:
            other.close()

    def _encode(self, content: Content, base: EntryHash | None) -> Preparation:
        old = None if base is None else self._base(content, base)
        try:
            if content.size <= LARGE_CONTENT and (old is None or old.size <= codecs.MAX_BSDIFF):
                chain = codecs.encode(content.whole(), b"" if old is None else old.whole(), keyframe=old is None)
                return _in_memory(chain)
            return self._spool(content, old)
        finally:
            if old is not None:
                old.close()

    def _base(self, content: Content, base: EntryHash) -> Content | None:
        """The content of the write `base`, if a delta against it is a good idea."""
        try:
            lineage = self._contents.lineages.of(base)
            if len(lineage.writes) > MAX_DELTAS or lineage.delta_bytes >= max(content.size, 4096):
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

    def _spool(self, content: Content, old: Content | None) -> Preparation:
        try:
            spool = Spool(self._contents.cache.directory)
            try:
                codecs.encode_large(content, old, spool.file)
                size = spool.seal()
                if size <= _SMALL_CHAIN:
                    return _in_memory(spool.read())
                self._check_room(spool, size)
                spool.cut()
            except BaseException:
                spool.close()
                raise
        except OSError as error:
            raise disk_error(error) from None
        return Preparation(spool.first, spool=spool)

    @staticmethod
    def _check_room(spool: Spool, size: int) -> None:
        """Raise `NoSpace` where the log has no room for a chain: its blocks would be stored in vain, and for ever."""
        disk = os.fstatvfs(spool.file.fileno())
        # They are written twice, to the write-ahead log and from there to the database.
        if disk.f_bavail * disk.f_frsize < 2 * size + _ROOM_FOR_THE_REST:
            raise NoSpace(f"the disk has no room for a file that takes {size} bytes in the log: free some space")

    def close(self) -> None:
        """Release the files."""
        for preparation in self._done.values():
            if isinstance(preparation.spool, Spool):
                preparation.spool.close()


def _in_memory(chain: bytes) -> Preparation:
    blocks = split(chain)
    if len(chain) <= _SMALL_CHAIN:
        return Preparation(blocks[0].hash, blocks)
    return Preparation(blocks[0].hash, spool=blocks)
