"""Intake, that is admission: the log accepts an entry, or it waits, or is refused (docs/formats.md, section 4).

From anyone, at any time: valid encoding, a known parent and, of a link or revert, a known entry that it names, a place
in the DAG, a key that was granted on the path or above it by an entry of the log, and a valid signature.  Everything
else waits in bounded memory or is refused; none of it touches the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from basefs.errors import DamagedLog, InvalidEntry, LocalProtocolError
from basefs.log.blocks import LISTED, Block, BlockPlace, listed
from basefs.log.entries import Action, Entry
from basefs.log.hashes import HASH_SIZE, BlockHash, EntryHash
from basefs.log.keys import fingerprint_of, verify
from basefs.log.orphans import Orphans
from basefs.log.placement import Placed
from basefs.log.store import Store
from basefs.log.verifying import find_wrong


@dataclass(slots=True)
class Newcomer:
    """The root entry of an empty log, until the grant comes that holds the key of its signature."""

    root: Entry | None = None


#: Entries that are looked up at once, and taken in before it is asked whether that is enough for one transaction.
_SLICE = 16
#: The same where each builds on the one before.
_LONG_SLICE = 64


@dataclass(slots=True)
class Delivery:
    """Entries and blocks of another node that are on their way into the log, in one transaction or in several.

    Attributes:
        entries: those that were not looked at yet.
        blocks: those that were not taken yet.
        peer: their sender.
        seen: number of the last entry of the log, in the order of arrival, when `known` was looked up.
        known: whether entries are in the log, as far as that was looked up or done since.
        verified: signature and raw public key of the entries whose signature was found to be right.
        refused: why others were taken out.
    """

    entries: deque[Entry]
    blocks: dict[BlockHash, Block]
    peer: str
    seen: int
    known: dict[EntryHash, bool]
    verified: dict[EntryHash, tuple[bytes, bytes]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, entries: Iterable[Entry], blocks: Iterable[Block], peer: str, seen: int) -> Delivery:
        """All of these; none of the entries is in the log up to the one with the number `seen`."""
        todo = deque(entries)
        return cls(todo, {block.hash: block for block in blocks}, peer, seen, {entry.hash: False for entry in todo})

    def verify(self, publics: Mapping[EntryHash, bytes], root: Entry | None) -> None:
        """Check signatures beforehand, which needs no lock.

        A wrong signature is refused at once, even if the parent is unknown: otherwise entries that wait in memory would
        have to be verified again and again.

        Args:
            publics: hash of an entry -> the raw public key that it names; others are not verified yet.
            root: the root entry, if any of these is a recovery.
        """
        signed = [(entry, publics.get(entry.hash)) for entry in self.entries]
        self.entries.clear()
        for (entry, public), error in zip(signed, find_wrong(signed, root), strict=True):
            if error is not None:
                self.refused.append(str(error))
                continue
            self.entries.append(entry)
            if public is not None:
                self.verified[entry.hash] = (entry.signature, public)

    def take(self) -> list[Entry]:
        """The entries to be looked at next, which leave it.

        A delete and its replacement, or a write and its mode, stay together: in between a file would be missing, or
        readable by all users.
        """
        some = [self.entries.popleft() for _ in range(min(_SLICE, len(self.entries)))]
        while self.entries and len(some) < _LONG_SLICE and self.entries[0].parent == some[-1].hash:
            some.append(self.entries.popleft())
        return some


class Intake:
    """One transaction's worth of entries and blocks on their way into the log.

    Attributes:
        now: UNIX seconds of the transaction.
        accepted: entries that are in the log now, parents first.
        completed: write entries that came before and are complete now.
        missing_parents: parents of entries that wait, and what links and reverts among these name.
        lacks_blocks: whether a write that came, or one of which blocks came, may lack blocks.
        rejected: why entries of the sender were refused, one reason each; not those of others that waited here for its.
        ungranted: how many of them wait because their key is granted nowhere, as far as is known here.
        new_blocks: how many blocks from others were stored.
    """

    def __init__(
        self,
        store: Store,
        orphans: Orphans,
        newcomer: Newcomer,
        *,
        now: float,
        local: bool,
        needs: Callable[[Placed], bool] | None = None,
    ) -> None:
        """`needs`: whether the content of a write of others should come at once, as far as a quick look tells; `None`:
        all should, also those that were withheld before.
        """
        self._store = store
        self._orphans = orphans
        self._newcomer = newcomer
        self._local = local
        self._needs = needs
        self.now = now
        #: The sender of what is taken in.
        self._peer = ""
        #: Those that were kept on disk until now.
        self._detached: set[EntryHash] = set()
        #: Whether entries are in the log, as far as that was looked up.
        self._known: dict[EntryHash, bool] = {}
        #: Blocks that came with the entries.
        self._offered: dict[BlockHash, Block] = {}
        self._verified: dict[EntryHash, tuple[bytes, bytes]] = {}
        self.accepted: list[Placed] = []
        self.completed: list[EntryHash] = []
        self.missing_parents: list[EntryHash] = []
        self.lacks_blocks = False
        self.rejected: list[str] = []
        self.ungranted = 0
        self.new_blocks = 0

    def add(self, delivery: Delivery, enough: Callable[[], bool] = lambda: False) -> None:
        """Admit a delivery, or as much of it as is `enough` for one transaction; the rest stays in it.

        Blocks that no entry names come last.
        """
        self._offered, self._verified = delivery.blocks, delivery.verified
        self.rejected += delivery.refused
        delivery.refused.clear()
        # And entries that another thread has put into the log since.
        self._known = delivery.known
        self._known.update(dict.fromkeys(self._store.arrived_behind(delivery.seen), True))
        while delivery.entries:
            self.add_entries(delivery.take(), delivery.peer)
            if delivery.entries and enough():
                delivery.seen = self._store.entry_count()
                return
        blocks = list(delivery.blocks.values())
        delivery.blocks.clear()
        self.add_blocks(blocks)

    def add_entries(self, entries: Sequence[Entry], peer: str) -> None:
        """Take entries in, and those that waited for them.

        Raises `LocalProtocolError` for an entry of this node that no log would accept.
        """
        self._peer = peer
        hashes = [entry.hash for entry in entries if entry.hash not in self._known]
        found = self._store.known(hashes)
        self._known.update((hash, hash in found) for hash in hashes)
        self._add_in_turn(deque((entry, peer, self._local) for entry in entries))

    def _add_in_turn(self, queue: deque[tuple[Entry, str, bool]]) -> None:
        """Take in entries, each with its sender and whether it is ours, and those that waited for them."""
        while queue:
            entry, sender, is_ours = queue.popleft()
            try:
                accepted = self._add_entry(entry, sender, is_ours)
            except (InvalidEntry, DamagedLog) as error:
                if is_ours and isinstance(error, DamagedLog):
                    raise
                if is_ours:
                    raise LocalProtocolError(f"this node has signed an entry that no other takes: {error}") from error
                if isinstance(error, InvalidEntry):
                    # Damage here is no fault of the peer's.
                    self._reject(str(error), sender)
                continue
            released = self._release(entry.hash) if accepted or entry.is_root else []
            if accepted and entry.action is Action.GRANT:
                released += self._release(fingerprint_of(entry.content))
            for orphan, sender in released:
                # It came from a peer and was never verified, regardless of the sender of its parent.
                queue.append((orphan, sender, False))

    def _reject(self, reason: str, sender: str) -> bool:
        """Note a refusal, if what is refused came from the sender; returns whether.

        Another peer may have sent it, so that the one is accused which brings its parent or grant.
        """
        is_theirs = sender == self._peer
        if is_theirs:
            self.rejected.append(reason)
        return is_theirs

    def _release(self, known: bytes) -> list[tuple[Entry, str]]:
        """The entries that waited for a parent or a key, in memory or on disk."""
        released = self._orphans.release(known)
        for entry in self._store.detached.release(known):
            self._detached.add(entry.hash)
            released.append((entry, ""))
        return released

    def _hold(self, entry: Entry, needs: bytes, peer: str) -> None:
        """Keep an entry that needs something else, where it was before."""
        if entry.hash in self._detached:
            self._store.detached.hold(entry, needs)
        else:
            self._orphans.hold(entry, needs, peer)

    def _add_entry(self, entry: Entry, peer: str, is_ours: bool) -> bool:
        """Take one entry in; returns whether it is in the log now and was not before."""
        known = self._known.get(entry.hash)
        if known or (known is None and entry.hash in self._store):
            return False
        if entry.is_root:
            if self._store.database.meta("identity") not in (None, entry.hash):
                raise InvalidEntry("a root entry of another filesystem")
            self._newcomer.root = entry
            return False
        root = self._newcomer.root
        if root is not None and entry.parent == root.hash:
            return self._begin(root, entry, peer)
        placed = self._place(entry, peer, is_ours)
        public = None if placed is None else self._key_of(placed, peer, is_ours)
        if placed is None or public is None:
            return False
        if not is_ours or entry.extensions.recovery is not None:
            self._verify(entry, public)
        self._insert(placed, is_ours)
        return True

    def _verify(self, entry: Entry, public: bytes) -> None:
        """Check a signature that was not checked beforehand.  Raises `InvalidEntry`."""
        if self._verified.get(entry.hash) != (entry.signature, public):
            verify(entry, public, self._root() if entry.extensions.recovery is not None else None)

    def _begin(self, root: Entry, entry: Entry, peer: str) -> bool:
        """Take in the signer's grant on the root directory, and the root entry with it; anything else waits for it."""
        if entry.action is Action.GRANT and root.fingerprint == entry.fingerprint == fingerprint_of(entry.content):
            self._add_root(root, entry)
            return True
        self._hold(entry, entry.parent, peer)
        return False

    def _place(self, entry: Entry, peer: str, is_ours: bool) -> Placed | None:
        """Where an entry stands; `None` while its parent, or what it names, is missing, for which it waits."""
        placed = self._store.place(entry)
        if placed is None:
            if is_ours:
                raise InvalidEntry(f"what entry {entry.hash.hex()[:12]} builds on is not here")
            needs = next(hash for hash in entry.needs if hash not in self._store)
            self._hold(entry, needs, peer)
            self.missing_parents.append(needs)
        return placed

    def _key_of(self, placed: Placed, peer: str, is_ours: bool) -> bytes | None:
        """The raw public key that an entry names; `None` while that is granted nowhere, for which the entry waits."""
        entry = placed.entry
        if entry.extensions.recovery is not None:
            # It brings its key along, and the recovery keys vouch for that.
            return entry.content
        public = self._store.granted.public_key(placed)
        if public is None:
            reason = (
                f"key {entry.fingerprint.hex()[:12]} is granted nowhere on or above the path of entry "
                f"{entry.hash.hex()[:12]}"
            )
            if is_ours:
                raise InvalidEntry(reason)
            self._hold(entry, entry.fingerprint, peer)
            self.ungranted += self._reject(reason, peer)
        return public

    def _root(self) -> Entry:
        """The root entry, behind which all others stand.  Raises `DamagedLog`."""
        root = self._store.root()
        if root is None:
            raise DamagedLog("the root entry is damaged")
        return root

    def _insert(self, placed: Placed, is_ours: bool) -> None:
        """Append a verified entry, and what has come of its content."""
        # The blocks of this node's own entries are stored before them.
        encoded = None if is_ours else placed.entry.encoded
        if encoded is None:
            self._accept(self._store.insert(placed, now=self.now, complete=True))
            return
        needed = self._needs is None or self._needs(placed)
        named = self._store_offered(encoded.place) if needed else []
        # One block is all of a content that is no list.
        complete = needed and not named and encoded.place.role not in LISTED
        self._accept(self._store.insert(placed, now=self.now, complete=complete, needed=needed))
        if needed and not complete and not self._store.is_complete(placed.entry.hash):
            self.lacks_blocks = True
            self._append(*self._held(named))

    def _store_offered(self, root: BlockPlace) -> list[BlockHash]:
        """Store the blocks of a verified write that came with it, as far as the lists came as well.

        The others are stored behind all entries, if they are missing: so this costs no more than what came.  Returns
        what the write and these lists name besides, some of which may have come before.
        """
        named: list[BlockHash] = []
        todo = [root]
        blocks = self._store.blocks
        takes = not blocks.lacks_room
        while todo:
            place = todo.pop()
            block = self._offered.get(place.hash) if takes else None
            if block is None or not place.fits(len(block.data)) or blocks.expects(place.hash):
                named.append(place.hash)
                continue
            del self._offered[place.hash]
            self.new_blocks += blocks.insert_block(block)
            if place.role in LISTED:
                todo += reversed(listed(place, block.data))
        return named

    def _accept(self, placed: Placed) -> None:
        self._known[placed.entry.hash] = True
        self.accepted.append(placed)

    def _add_root(self, root: Entry, grant: Entry) -> None:
        """Take in the first two entries of a log: the root directory, and its signer's grant on it.

        The identity vouches for the root entry but not for its signature, and the key comes with the grant.
        """
        for entry in (root, grant):
            verify(entry, grant.content, root)
        for entry in (root, grant):
            placed = self._store.place(entry)
            assert placed is not None
            self._accept(self._store.insert(placed, now=self.now))
        self._newcomer.root = None
        self._add_in_turn(deque((entry, sender, False) for entry, sender in self._release(root.hash)))

    def add_own_blocks(self, blocks: Sequence[Block]) -> None:
        """Take in the blocks of content made on this node."""
        for block in blocks:
            if self._store.blocks.expects(block.hash):
                # The same content is arriving from another peer.
                self._append(block)
            else:
                self._store.blocks.insert_block(block)

    def add_blocks(self, blocks: Sequence[Block]) -> None:
        """Take in blocks from others: those that are missing; the others wait in memory."""
        for block in blocks:
            if self._needs is None and not self._store.blocks.expects(block.hash):
                self.completed += self._store.blocks.release(block.hash)
            if self._store.blocks.expects(block.hash):
                if not self._store.blocks.lacks_room:
                    self._append(block)
            elif self._store.blocks.block(block.hash) is None:
                self._orphans.hold_block(block)

    def take_held(self, hashes: Iterable[BlockHash]) -> None:
        """Take in those of these blocks that wait in memory, with what they name, if they are missing."""
        self._append(*self._held(hashes))

    def _held(self, hashes: Iterable[BlockHash]) -> Iterator[Block]:
        """Those of these blocks that wait in memory and are missing; they are no longer kept."""
        for hash in hashes:
            if not self._store.blocks.lacks_room and self._orphans.holds(hash) and self._store.blocks.expects(hash):
                block = self._orphans.release_block(hash)
                assert block is not None, "it was held"
                yield block

    def _append(self, *blocks: Block) -> None:
        """Append blocks that are missing, and those in memory that they name."""
        todo = deque(blocks)
        while todo:
            block = todo.popleft()
            data = block.data
            self.completed += self._store.blocks.append_block(block, now=self.now)
            self.new_blocks += 1
            self.lacks_blocks = True
            if not len(data) % HASH_SIZE:
                # It may be a list.
                todo += self._held(BlockHash(data[at : at + HASH_SIZE]) for at in range(0, len(data), HASH_SIZE))
