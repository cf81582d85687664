"""What the sync protocol (docs/sync-protocol.md) needs from the log: a Protocol, so that it imports no replica."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from basefs.log.hashes import ZERO_HASH, BlockHash, EntryHash
from basefs.path import Path


class Digest(NamedTuple):
    """A log in one line: whether two are equal, and about how far they are apart.

    Attributes:
        root: the hash of the whole tree (28 bytes).
        entries: how many there are.
        waiting: contents that do not come because there is no room for them, of which the tree does not tell.
        missing: all contents that have not arrived, likewise.
        lacks: a hash of which contents these are; `ZERO_HASH` where none is missing, or where that is not known yet.
    """

    root: bytes
    entries: int
    waiting: int = 0
    missing: int = 0
    lacks: bytes = ZERO_HASH

    def same_entries(self, other: Digest | None) -> bool:
        """Whether the other log has the same entries, whatever contents are missing in either."""
        return other is not None and self.entries_alone() == other.entries_alone()

    def entries_alone(self) -> Digest:
        """The same without the contents, which come while the entries stay."""
        return self._replace(waiting=0, missing=0, lacks=ZERO_HASH)

    def lacks_same(self, other: Digest) -> bool:
        """Whether the same contents are missing in both logs, as far as both know; perhaps none."""
        is_known = not self.missing or self.lacks != ZERO_HASH
        return is_known and (self.missing, self.lacks) == (other.missing, other.lacks)

    def has_contents_of(self, other: Digest) -> bool:
        """Whether no content is missing here that is there in the other log, if they have the same entries."""
        return not self.missing or self.lacks_same(other)


@dataclass(frozen=True, slots=True)
class Listing:
    """The known properties of one path.

    Attributes:
        entries: own entries of this path, in the order of the log (a log is always in an order in which it can be
            accepted; any other order costs rounds).
        children: name and 28-byte Merkle hash of each sub-path, sorted by name.
    """

    entries: tuple[EntryHash, ...]
    children: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class AddResult:
    """The result of offering entries and blocks to the log.

    Attributes:
        accepted: how many were new and are in the log now.
        missing_parents: parents that must come before some of the entries.
        lacks_blocks: whether contents that this call began or continued may lack blocks.
        rejected: one reason for each entry or block that was refused; something known already is not refused.
        strays: how many of them are blocks of no content that is known.  A log may keep those for a while instead.
        ungranted: how many of them are entries of a key that is granted nowhere, as far as is known here: they may have
            overtaken the grant.
        unsupported: how many of them are entries of keys of this log that a later version may accept.
    """

    accepted: int
    missing_parents: tuple[EntryHash, ...]
    lacks_blocks: bool
    rejected: tuple[str, ...]
    strays: int = 0
    ungranted: int = 0
    unsupported: int = 0


class LogState(Protocol):
    """A log with its Merkle tree.

    The hash of a path stands for the set of entries at and below it that are in the tree (docs/formats.md, section 7);
    the root hash stands for all.  Methods are short and lock themselves; between two calls the log may have grown,
    nothing is ever removed.
    """

    @property
    def identity(self) -> bytes:
        """Hash of the root entry (28 bytes); `ZERO_HASH` in an empty log that takes whatever it is given."""

    def root_hash(self) -> bytes:
        """The hash of the whole tree (28 bytes)."""

    def digest(self) -> Digest:
        """The log in one line, all of it of the same moment."""

    def listing(self, path: Path) -> Listing | None:
        """The listing of `path`; None if the log has no entry of it."""

    def path_hash(self, path: Path) -> bytes:
        """The Merkle hash of `path`; `ZERO_HASH` where unknown."""

    def child_hashes(self, path: Path, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """The Merkle hashes of those of these sub-paths that are known, by name."""

    def walk(self, path: Path) -> Iterator[bytes]:
        """Encoded entries of `path` and everything below, each after all that it depends on.

        Lazy, in bounded memory, and safe while the log grows.
        """

    def entry(self, hash: EntryHash) -> bytes | None:
        """An encoded entry."""

    def block(self, hash: BlockHash) -> bytes | None:
        """A block, of up to 32 KiB."""

    def has_block(self, hash: BlockHash) -> bool:
        """Whether a block is here."""

    def wants_block(self, hash: BlockHash) -> bool:
        """Whether a block is to be fetched."""

    def add(self, entries: Sequence[bytes], blocks: Sequence[bytes], *, peer: str = "") -> AddResult:
        """Verify and append, entries first.  Never raises for bad input.

        `peer`: their sender, in whose room those wait that come too early.
        """

    def missing_blocks(self, limit: int, behind: int = 0) -> list[tuple[int, BlockHash]]:
        """The blocks that are to be fetched, at most `limit` of those with a number above `behind`, with it.

        In the order of the contents; a block may come several times.
        """
