"""Quotas: which entries of a key are within the quotas of its grants (docs/authority.md).

An *account* is what one key has written at and below one directory.  Its entries have an order that depends on them
alone: by the time at which they were signed, then by hash, but each one behind those of the account that it follows or
names.  An entry is within a quota if it and all before it are.  It is over if that is so of no directory on which the
key is granted.

So an entry that comes late with an early time moves only later entries of the same key, and only over the quota; and a
key cannot bring back what it has over the quota with an entry that is not.  A revert or link to an entry of the
same key in another account, or to one that is not here, is over.

An entry is looked up in sums of the order, however many quotas there are, and a revert or link that comes before what
it names is looked at twice, so the cost is linear in the entries of the key.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from basefs.errors import QuotaExceeded
from basefs.log.entries import Action
from basefs.log.extensions import NO_LIMIT, Quota
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.placement import Placed
from basefs.log.store import Store
from basefs.path import Path, display

#: The place of an entry that no quota holds, behind all times.
_NEVER = 1 << 80
#: Entries of an account that are kept together, and twice as many at the most: an early one costs a step for each of
#: its own bucket, and one for each bucket behind.
_BUCKET = 256
#: For how many quotas each entry of an account is remembered, on average.
_MOST_ASKED = 8


class Use(NamedTuple):
    """An amount of what a key has written, or may: bytes of contents, and entries."""

    bytes: int
    entries: int


def _left(quota: Quota, used: Use) -> Use:
    return Use(quota.bytes - used.bytes, quota.entries - used.entries)


def _both(one: Use, other: Use) -> Use:
    return Use(one.bytes + other.bytes, one.entries + other.entries)


def is_within(most: Quota | Use, used: Use) -> bool:
    """Whether an amount is no larger than another one."""
    return used.bytes <= most.bytes and used.entries <= most.entries


class _Place(NamedTuple):
    """The place of an entry in the order of an account, and its bytes."""

    stamp: int
    hash: EntryHash
    size: int


@dataclass(slots=True)
class _Bucket:
    """Some entries that come one after another in an account.

    Attributes:
        places: these entries, in order.
        sizes: their bytes, each with those before it here; empty while that is not known.
        within: entries and quotas that were asked for, where the entry is within the quota.
        more_bytes, more_entries: the least room that is left in any of these quotas.
    """

    places: list[_Place] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    within: dict[tuple[EntryHash, Quota], None] = field(default_factory=dict)
    more_bytes: int = NO_LIMIT
    more_entries: int = NO_LIMIT

    def note(self, hash: EntryHash, quota: Quota, used: Use) -> None:
        """An entry is within a quota, of which all up to it use so much."""
        self.within[hash, quota] = None
        self.more_bytes = min(self.more_bytes, quota.bytes - used.bytes)
        self.more_entries = min(self.more_entries, quota.entries - used.entries)

    def used(self, position: int) -> Use:
        """What the entries here use up to one of them."""
        if not self.sizes:
            self.sizes = list(accumulate(place.size for place in self.places))
        return Use(self.sizes[position], position + 1)


class _Order:
    """The entries of an account in their order: how much all up to one use, and which an early one pushes out.

    In buckets: an entry moves those behind it in its own one, and of the others only what is noted of each bucket.
    """

    def __init__(self) -> None:
        self._buckets = [_Bucket()]
        #: The first place of each bucket but the first one, before which nothing is put.
        self._starts: list[tuple[int, EntryHash]] = []
        #: What the entries before each bucket use; empty while that is not known.
        self._before: list[Use] = []

    def used(self, stamp: int, hash: EntryHash) -> tuple[_Bucket, Use]:
        """The bucket of an entry, and what all up to it use."""
        index = self._index((stamp, hash))
        bucket = self._buckets[index]
        return bucket, self._up_to(index, bisect_left(bucket.places, (stamp, hash)))

    def put(self, place: _Place) -> list[tuple[EntryHash, Quota]]:
        """Put an entry into the order; returns what was noted to be within a quota and is not any more."""
        index = self._index((place.stamp, place.hash))
        bucket = self._buckets[index]
        insort(bucket.places, place)
        bucket.sizes.clear()
        self._before.clear()
        pushed: list[tuple[EntryHash, Quota]] = []
        for behind in range(index, len(self._buckets)):
            later = self._buckets[behind]
            if later.within:
                later.more_bytes -= place.size
                later.more_entries -= 1
                if later.more_bytes < 0 or later.more_entries < 0:
                    pushed += self._review(behind)
        if len(bucket.places) > 2 * _BUCKET:
            self._split(index)
        return pushed

    def forget(self) -> None:
        """Forget what was noted."""
        for bucket in self._buckets:
            bucket.within.clear()

    def within(self) -> Iterator[tuple[EntryHash, Quota]]:
        """What was noted and is within its quota."""
        for bucket in self._buckets:
            yield from bucket.within

    def _index(self, key: tuple[int, EntryHash]) -> int:
        return bisect_right(self._starts, key)

    def _up_to(self, index: int, position: int) -> Use:
        if not self._before:
            uses = (bucket.used(-1)._replace(entries=len(bucket.places)) for bucket in self._buckets[:-1])
            self._before = list(accumulate(uses, _both, initial=Use(0, 0)))
        return _both(self._before[index], self._buckets[index].used(position))

    def _review(self, index: int) -> list[tuple[EntryHash, Quota]]:
        """Look again at what was noted in a bucket; returns what is not within its quota any more."""
        bucket = self._buckets[index]
        bytes, entries = self._up_to(index, 0)
        bytes -= bucket.places[0].size
        used = {
            place.hash: Use(bytes + size, count)
            for count, (place, size) in enumerate(zip(bucket.places, bucket.sizes, strict=True), entries)
        }
        noted, bucket.within = bucket.within, {}
        bucket.more_bytes = bucket.more_entries = NO_LIMIT
        pushed = []
        for hash, quota in noted:
            if is_within(quota, used[hash]):
                bucket.note(hash, quota, used[hash])
            else:
                pushed.append((hash, quota))
        return pushed

    def _split(self, index: int) -> None:
        bucket = self._buckets[index]
        rest = _Bucket(bucket.places[_BUCKET:], more_bytes=bucket.more_bytes, more_entries=bucket.more_entries)
        moved = {place.hash for place in rest.places}
        rest.within = {noted: None for noted in bucket.within if noted[0] in moved}
        bucket.within = {noted: None for noted in bucket.within if noted[0] not in moved}
        del bucket.places[_BUCKET:]
        bucket.sizes.clear()
        self._before.clear()
        self._buckets.insert(index + 1, rest)
        self._starts.insert(index, rest.places[0][:2])


@dataclass(slots=True)
class _Account:
    """What a key has written at and below one path.

    Attributes:
        depth: number of components of the path.
        stamps: entry -> its stamp, `_NEVER` for one that no quota holds.
        held: what keeps entries without a place -> these entries: one that has none itself, or is not in the log.
        order: the others, in order.
        size: bytes of all.
        over: entries and quotas that were asked for, where the entry is over the quota.
        asked: how often something new was asked for since all was forgotten.
        is_forgotten: whether what was asked for is not known any more.
    """

    depth: int
    stamps: dict[EntryHash, int] = field(default_factory=dict)
    held: dict[EntryHash, list[EntryHash]] = field(default_factory=dict)
    order: _Order = field(default_factory=_Order)
    size: int = 0
    over: dict[tuple[EntryHash, Quota], None] = field(default_factory=dict)
    asked: int = 0
    is_forgotten: bool = False

    def is_over(self, hash: EntryHash, quota: Quota) -> bool:
        """Whether an entry of the account is beyond a quota."""
        # One that is not here was lost to damage.
        stamp = self.stamps.get(hash, _NEVER)
        if stamp >= _NEVER:
            self._note_over(hash, quota)
            return True
        bucket, used = self.order.used(stamp, hash)
        if not is_within(quota, used):
            self._note_over(hash, quota)
            return True
        if (hash, quota) not in bucket.within:
            bucket.note(hash, quota, used)
            self._note_asked()
        return False

    def put(self, hash: EntryHash, stamp: int, size: int) -> list[EntryHash]:
        """Note an entry; returns those that this pushes over a quota that was asked for."""
        self.stamps[hash] = stamp
        self.size += size
        if stamp >= _NEVER:
            return []
        pushed = self.order.put(_Place(stamp, hash, size))
        self.over.update(dict.fromkeys(pushed))
        if self.is_forgotten:
            self.is_forgotten = False
            return list(self.stamps)
        return [entry for entry, _ in pushed]

    def judged(self) -> Iterator[tuple[EntryHash, Quota, bool]]:
        """What was asked for: entry, quota, and whether it is over."""
        for is_over, asked in ((False, self.order.within()), (True, self.over)):
            for hash, quota in asked:
                yield hash, quota, is_over

    def _note_over(self, hash: EntryHash, quota: Quota) -> None:
        if (hash, quota) not in self.over:
            self.over[hash, quota] = None
            self._note_asked()

    def _note_asked(self) -> None:
        """Forget all once the quotas are many more than the entries: then any entry may be another one."""
        self.asked += 1
        if self.asked > _MOST_ASKED * (len(self.stamps) + 1):
            self.asked = 0
            self.is_forgotten = True
            self.order.forget()
            self.over.clear()


def exceeded(path: Path) -> QuotaExceeded:
    """What to raise where a change at a path does not fit."""
    where = f"the quota of this node's key at {display(path)}"
    return QuotaExceeded(f"{where} is used up: ask a key holder for 'basefs grant' with a larger one")


class _Written(NamedTuple):
    """What the order needs of an entry.  `named`: what a revert or link names."""

    made: int
    size: int
    path_id: int
    parent: EntryHash
    named: EntryHash | None


def _written(placed: Placed) -> _Written:
    entry = placed.entry
    named = EntryHash(entry.content) if entry.action in (Action.REVERT, Action.LINK) else None
    return _Written(entry.made, entry.size, placed.path_id, entry.parent, named)


#: What an entry names that is not here -> the keys and the paths of the accounts in which it has no place until then.
_Awaited = dict[EntryHash, dict[tuple[Fingerprint, int], None]]


class _Writer:
    """The accounts of one key.

    The holder of a key for a deep directory decides how many accounts an entry is in, so whether it is in one is found
    out without a look at all directories above it.
    """

    def __init__(self, store: Store, fingerprint: Fingerprint, awaited: _Awaited) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._awaited = awaited
        self._written: dict[EntryHash, _Written] = {}
        #: By path id: what was written there, and the paths directly below at or below which anything was.
        self._at: dict[int, list[EntryHash]] = {}
        self._below: dict[int, list[int]] = {}
        #: Revert or link -> the number of components that its path and that of what it names have in common.
        self._common: dict[EntryHash, int] = {}
        self._accounts: dict[int, _Account] = {}
        for placed in store.entries_by(fingerprint):
            self.add(placed)

    def account(self, path_id: int) -> _Account:
        """What the key has written at and below a path."""
        account = self._accounts.get(path_id)
        if account is None:
            account = self._accounts[path_id] = _Account(len(self._store.paths.upwards(path_id)) - 1)
            todo = [path_id]
            while todo:
                at = todo.pop()
                todo += self._below.get(at, ())
                for hash in self._at.get(at, ()):
                    if hash not in account.stamps:
                        self._put(account, path_id, hash)
        return account

    def add(self, placed: Placed) -> None:
        """An entry of the key came; `count` comes next, once all that came with it are added."""
        self._written[placed.entry.hash] = _written(placed)
        at = placed.path_id
        while at not in self._at:
            self._at[at] = []
            above = self._store.paths.above(at)
            if not above:
                break
            self._below.setdefault(above, []).append(at)
            at = above
        self._at[placed.path_id].append(placed.entry.hash)

    def count(self, hash: EntryHash) -> list[EntryHash]:
        """Take an entry of the key into the accounts; returns the entries that are over a quota by it."""
        pushed: list[EntryHash] = []
        for path_id in self._store.paths.upwards(self._written[hash].path_id):
            account = self._accounts.get(path_id)
            if account is not None:
                pushed += self._put(account, path_id, hash)
        return pushed

    def release(self, path_id: int, hash: EntryHash) -> list[EntryHash]:
        """An entry of any key came; returns the entries that have a place in an account by it, and those that these
        push out.

        Each one that has waited is looked at once for each of the two that it follows and names.
        """
        changed: list[EntryHash] = []
        account = self._accounts[path_id]
        todo = [hash]
        while todo:
            for waiting in account.held.pop(todo.pop(), ()):
                if account.stamps[waiting] < _NEVER:
                    continue
                del account.stamps[waiting]
                account.size -= self._written[waiting].size
                changed += self._put(account, path_id, waiting)
                if account.stamps[waiting] < _NEVER:
                    changed.append(waiting)
                    todo.append(waiting)
        return changed

    def changed(self, after: _Writer) -> Iterator[EntryHash]:
        """The entries that may not be over, or not within, a quota in other accounts of the key as they are here."""
        for path_id, account in self._accounts.items():
            other = after.account(path_id)
            if account.is_forgotten:
                yield from account.stamps
            for hash, quota, was_over in account.judged():
                if hash not in other.stamps or other.is_over(hash, quota) != was_over:
                    yield hash

    def _put(self, account: _Account, path_id: int, hash: EntryHash) -> list[EntryHash]:
        """Put an entry into an account, behind those that it follows or names."""
        pushed: list[EntryHash] = []
        todo = [hash]
        while todo:
            written = self._written[todo[-1]]
            before = self._before(account, path_id, todo[-1])
            if missing := [other for other in before if other not in account.stamps]:
                # A revert may come before the entry that it names.  None names itself: an entry holds these hashes.
                todo += missing
                continue
            last = todo.pop()
            if last not in account.stamps:
                stamps = [account.stamps[other] + 1 for other in before]
                named = written.named
                is_here = named is None or named in before or (named not in self._written and named in self._store)
                pushed += account.put(last, max(written.made, 0 if is_here else _NEVER, *stamps), written.size)
                causes = [other for other in before if account.stamps[other] >= _NEVER]
                if not is_here and named is not None and named not in self._written:
                    causes.append(named)
                    self._awaited.setdefault(named, {})[self._fingerprint, path_id] = None
                for cause in causes:
                    account.held.setdefault(cause, []).append(last)
        return pushed

    def _before(self, account: _Account, path_id: int, hash: EntryHash) -> list[EntryHash]:
        """The entries of an account that one of them follows or names."""
        written = self._written[hash]
        found = []
        parent = self._written.get(written.parent)
        # That is on the same path, or the directory that holds it.
        if parent is not None and (parent.path_id == written.path_id or written.path_id != path_id):
            found.append(written.parent)
        if written.named in self._written and self._shared(hash, written) >= account.depth:
            found.append(written.named)
        return found

    def _shared(self, hash: EntryHash, written: _Written) -> int:
        """How many components the path of a revert or link has in common with that of what it names."""
        found = self._common.get(hash)
        if found is None:
            assert written.named is not None
            own, other = (
                self._store.paths.upwards(id)[::-1] for id in (written.path_id, self._written[written.named].path_id)
            )
            found = self._common[hash] = sum(one == two for one, two in zip(own, other, strict=False)) - 1
        return found

    def holds(self, named: EntryHash, path_id: int) -> bool:
        """Whether a revert or link may be within a quota of an account by what it names."""
        written = self._written.get(named)
        return named in self._store if written is None else path_id in self._store.paths.upwards(written.path_id)


class Quotas:
    """The accounts of the keys of one log, as far as somebody asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writers: dict[Fingerprint, _Writer] = {}
        self._seen = 0
        self._rewinds = 0
        self._pushed: dict[EntryHash, None] = {}
        self._awaited: _Awaited = {}
        #: The accounts before the log was first rolled back since `pushed` was called.
        self._before: dict[Fingerprint, _Writer] = {}

    def is_over(self, placed: Placed, limits: Mapping[int, Quota]) -> bool:
        """Whether an entry of the log is over the quotas of its key.

        `limits`: by the depth of the directory on which the key is granted.
        """
        upwards = self._store.paths.upwards(placed.path_id)
        writer = self._writer(placed.entry.fingerprint)
        return all(
            writer.account(upwards[-1 - depth]).is_over(placed.entry.hash, quota) for depth, quota in limits.items()
        )

    def use(self, fingerprint: Fingerprint, path_id: int) -> Use:
        """What a key has written at and below a path."""
        account = self._writer(fingerprint).account(path_id)
        return Use(account.size, len(account.stamps))

    def fits(
        self,
        fingerprint: Fingerprint,
        path_id: int,
        limits: Mapping[int, Quota],
        more: Use,
        names: Iterable[EntryHash] = (),
    ) -> bool:
        """Whether a key can write so much more at a path and be within its quotas with all that it has written.

        `names`: what new reverts and links name.
        """
        upwards = self._store.paths.upwards(path_id)
        writer = self._writer(fingerprint)
        accounts = [(upwards[-1 - depth], quota) for depth, quota in limits.items() if depth < len(upwards)]
        return any(
            all(writer.holds(named, top) for named in names)
            and is_within(_left(quota, self.use(fingerprint, top)), more)
            for top, quota in accounts
        )

    def left(self, fingerprint: Fingerprint, path_id: int, limits: Mapping[int, Quota]) -> dict[int, Use]:
        """What a key has left of each of its quotas at a path, by the depth of the directory."""
        upwards = self._store.paths.upwards(path_id)
        return {depth: _left(quota, self.use(fingerprint, upwards[-1 - depth])) for depth, quota in limits.items()}

    def pushed(self) -> list[Placed]:
        """The entries that may be over a quota, or not any more, since this was called last."""
        if not self._writers:
            return []
        self._catch_up()
        before, self._before = self._before, {}
        for fingerprint, writer in before.items():
            # These have changed since the log was rolled back.
            self._pushed.update(dict.fromkeys(writer.changed(self._writers[fingerprint])))
        pushed, self._pushed = self._pushed, {}
        return [placed for hash in pushed if (placed := self._store.get(hash)) is not None]

    def _writer(self, fingerprint: Fingerprint) -> _Writer:
        if self._writers:
            self._catch_up()
        else:
            self._rewinds, self._seen = self._store.version[0], self._store.entry_count()
        writer = self._writers.get(fingerprint)
        if writer is None:
            writer = self._writers[fingerprint] = _Writer(self._store, fingerprint, self._awaited)
        return writer

    def _catch_up(self) -> None:
        """Take in what came into the log since the last time, or has vanished from it."""
        rewinds = self._store.version[0]
        if rewinds != self._rewinds:
            self._awaited.clear()
            # A look at the past is such a rollback, and another one ends it: what is between is never shown.
            self._before = self._writers | self._before
            self._writers = {
                fingerprint: _Writer(self._store, fingerprint, self._awaited) for fingerprint in self._writers
            }
        elif (seen := self._store.entry_count()) != self._seen:
            new = self._store.entries_behind(self._seen)
            own = [placed for placed in new if placed.kind.is_state and placed.entry.fingerprint in self._writers]
            for placed in own:
                self._writers[placed.entry.fingerprint].add(placed)
            for placed in own:
                pushed = self._writers[placed.entry.fingerprint].count(placed.entry.hash)
                self._pushed.update(dict.fromkeys(pushed))
            for placed in new:
                # Only the accounts that wait for it: somebody may have made very many.
                for fingerprint, path_id in self._awaited.pop(placed.entry.hash, ()):
                    released = self._writers[fingerprint].release(path_id, placed.entry.hash)
                    self._pushed.update(dict.fromkeys(released))
            self._seen = seen
            return
        self._rewinds, self._seen = rewinds, self._store.entry_count()
