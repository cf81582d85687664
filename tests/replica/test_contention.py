"""Who wants the log while a delivery is on its way into it: others go first, and the outcome is the same."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pathlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import basefs.log.cache
import basefs.log.intake
import basefs.log.verifying
import basefs.replica.replica
from basefs.errors import DamagedLog, InvalidEntry, StoreError
from basefs.log.content import LARGE_CONTENT, BytesContent, Content, digest_of
from basefs.log.entries import Action, Entry
from basefs.log.guard import Guard
from basefs.log.hashes import EntryHash
from basefs.log.keys import verify
from basefs.log.verifying import Signed, find_wrong
from basefs.path import Path
from basefs.replica.replica import CACHE_FILE, LOG_FILE, Applied, Replica
from basefs.replication.propagation import Propagation, PropagationSettings
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.states import State
from tests.support.helpers import ROOT_KEY, copy_replica, genesis, make_replica, noise, path, tree_of
from tests.support.patience import DEADLINE

ROOT = genesis()[0]


@contextmanager
def wanted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Somebody always waits, and no hold is short."""
    with monkeypatch.context() as patch:
        patch.setattr(Guard, "is_wanted", True)
        patch.setattr(basefs.replica.replica, "LONG_HOLD", -1.0)
        yield


def make_delivery(tmp_path: pathlib.Path, count: int) -> tuple[Replica, Replica, Applied]:
    """Two equal replicas, the first of which then writes files; what it wrote."""
    writer = make_replica(tmp_path / "writer", (ROOT_KEY,))
    reader = copy_replica(writer, tmp_path / "reader")

    def make(author: Author):  # type: ignore[no-untyped-def]
        for number in range(count):
            yield author.write(path(f"/f{number}"), noise(number, 3000))

    return writer, reader, writer.commit(make)


@pytest.fixture
def in_time() -> Iterator[Callable[[Callable[[], object]], bool]]:
    """Whether another thread can do something now, without waiting for this one."""
    threads = []

    def try_it(action: Callable[[], object]) -> bool:
        thread = threading.Thread(target=action, daemon=True)
        threads.append(thread)
        thread.start()
        thread.join(DEADLINE)
        return not thread.is_alive()

    yield try_it
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()


@pytest.mark.parametrize("backwards", [False, True])
def test_a_delivery_in_several_transactions_ends_like_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    writer, reader, written = make_delivery(tmp_path, 100)
    other = copy_replica(reader, tmp_path / "other")
    told: list[Applied] = []
    reader.subscribe(told.append)
    entries = written.entries[::-1] if backwards else written.entries
    with wanted(monkeypatch):
        parts = reader.apply(entries, written.blocks)
    whole = other.apply(entries, written.blocks)
    assert len(told) > 3
    assert [entry for part in told for entry in part.entries] == list(parts.entries)
    assert set(parts.entries) == set(whole.entries) == set(written.entries)
    assert replace(parts, entries=(), changes=()) == replace(whole, entries=(), changes=())
    assert parts.missing_parents == () and not parts.lacks_blocks
    assert tree_of(reader) == tree_of(other) == tree_of(writer)
    assert reader.root_hash() == other.root_hash() == writer.root_hash()
    for replica in (writer, reader, other):
        replica.close()


def test_a_delivery_is_not_cut_where_a_file_would_be_gone_or_open_to_all(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader, _ = make_delivery(tmp_path, 0)
    for name in ("/f", "/g"):
        made = writer.commit(partial(Author.write, path=path(name), content=name.encode()))
        reader.apply(made.entries, made.blocks)

    def make(author: Author):  # type: ignore[no-untyped-def]
        for number in range(15):
            yield author.write(path(f"/{number}"), b"")
        yield author.remove(path("/g"), directory=False)
        yield author.make_link(path("/g"), path("/f"))
        for number in range(15, 30):
            yield author.write(path(f"/{number}"), b"")
        yield author.write(path("/secret"), b"secret", mode=0o600)
        for number in range(200):
            yield author.write(path("/chain"), b"%d" % number)

    written = writer.commit(make)
    actions = [entry.action for entry in written.entries[15:17]]
    assert actions == [Action.DELETE, Action.LINK], "the first slice ends between them"
    assert written.entries[33].action is Action.MODE, "the second one likewise"
    reader.observe()
    told: list[Applied] = []
    reader.subscribe(told.append)
    with wanted(monkeypatch):
        reader.apply(written.entries, written.blocks)
    seen: dict[Path, list[State | None]] = {path("/g"): [], path("/secret"): []}
    for applied in told:
        for change in applied.changes:
            if change.path in seen:
                seen[change.path].append(change.after)
    assert None not in seen[path("/g")]
    assert [state.mode for state in seen[path("/secret")] if state] == [0o600]
    # However long a chain is.
    assert len(told) > 4
    assert tree_of(reader) == tree_of(writer)
    writer.close()
    reader.close()


def test_who_waits_for_the_log_gets_it_in_the_middle_of_a_delivery(tmp_path: pathlib.Path) -> None:
    # This thread may be away while all of it is applied, if seldom.
    for attempt in range(10):
        writer, reader, written = make_delivery(tmp_path / str(attempt), 200)
        reader.close()
        # To it a second passes from one look to the next, so that no hold is short.
        reader = Replica(reader.directory, steady=itertools.count().__next__)
        applying = threading.Thread(target=reader.apply, args=(written.entries, written.blocks))
        applying.start()
        seen = {reader.root_hash()}
        while applying.is_alive():
            reader.wait()
            seen.add(reader.root_hash())
        assert writer.root_hash() in seen | {reader.root_hash()}
        writer.close()
        reader.close()
        # Not just what was there before, and what was there afterwards.
        if len(seen) > 2:
            break
    assert len(seen) > 2


def test_who_waits_while_something_is_written_has_the_log_before_the_next_is(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path, (ROOT_KEY,))
    waiting: list[threading.Thread] = []

    def make(author: Author) -> Draft:
        waiting.append(threading.Thread(target=replica.wait, daemon=True))
        waiting[-1].start()
        while not replica._lock.is_wanted:
            pass
        return author.write(path("/f"), b"%d" % len(waiting))

    for _ in range(20):
        before = len(waiting)
        replica.commit(make)
        assert len(waiting) > before and not replica._lock.is_wanted
    for thread in waiting:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    replica.close()


def test_nobody_waits_for_signatures(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, in_time: Callable[[Callable[[], object]], bool]
) -> None:
    writer, reader, written = make_delivery(tmp_path, 3)
    answers: list[bool] = []

    def verify_slowly(entry: Entry, public: bytes, root: Entry | None) -> None:
        answers.append(in_time(reader.wait))
        verify(entry, public, root)

    monkeypatch.setattr(basefs.log.verifying, "verify", verify_slowly)
    assert reader.apply(written.entries, written.blocks).entries == written.entries
    assert answers == [True] * len(written.entries)
    # Once, and not at all where the entry is known.
    reader.apply(written.entries, written.blocks)
    assert len(answers) == len(written.entries)
    writer.close()
    reader.close()


@pytest.mark.parametrize("cut", [False, True])
def test_what_came_by_another_way_meanwhile_and_what_comes_twice_is_taken_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    writer, reader, written = make_delivery(tmp_path, 40)
    others = list(written.entries[:20])

    def verify_meanwhile(signed: Sequence[Signed], root: Entry | None) -> list[InvalidEntry | None]:
        if others:
            some = others[:]
            others.clear()
            reader.apply(some, written.blocks)
        return find_wrong(signed, root)

    monkeypatch.setattr(basefs.log.intake, "find_wrong", verify_meanwhile)
    twice = [entry.encode() for entry in (*written.entries, *written.entries)]
    with wanted(monkeypatch) if cut else contextlib.nullcontext():
        result = reader.add(twice, [block.encode() for block in written.blocks])
    assert not others
    assert result.rejected == result.missing_parents == ()
    assert reader.root_hash() == writer.root_hash()
    assert reader.totals()["entries"] == writer.totals()["entries"]
    writer.close()
    reader.close()


def test_what_is_known_is_not_decoded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader, written = make_delivery(tmp_path, 40)
    decoded: list[bytes] = []

    def decode(raw: bytes, hash: EntryHash) -> Entry:
        decoded.append(raw)
        return Entry.decode(raw, hash)

    monkeypatch.setattr(basefs.replica.replica, "Entry", SimpleNamespace(decode=decode))
    raws = [entry.encode() for entry in written.entries]
    blocks = [block.encode() for block in written.blocks]
    assert reader.add(raws[:30], blocks).accepted
    assert decoded == raws[:30]
    assert reader.add(raws, blocks).accepted
    assert decoded == raws
    assert reader.root_hash() == writer.root_hash()
    writer.close()
    reader.close()


def test_a_right_signature_vouches_for_no_other_one_of_the_same_entry(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path)
    entry = ROOT_KEY.sign(ROOT.hash, 1, Action.MKDIR, b"d")
    forged = replace(entry, signature=bytes(64))
    assert forged.hash == entry.hash
    applied = replica.apply([forged, entry], [])
    assert [accepted.signature for accepted in applied.entries] == [entry.signature]
    assert len(applied.rejected) == 1
    replica.close()


def test_a_wrong_signature_is_refused_before_the_parent_is_known(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path)
    parent = ROOT_KEY.sign(ROOT.hash, 1, Action.MKDIR, b"d")
    forged = replace(ROOT_KEY.sign(parent.hash, 1, Action.MKDIR, b"e"), signature=bytes(64))
    applied = replica.apply([forged], [])
    assert "wrong signature" in applied.rejected[0]
    assert applied.missing_parents == ()
    assert replica.totals()["orphans"] == 0
    replica.close()


def test_contents_are_encoded_without_the_lock(
    tmp_path: pathlib.Path, in_time: Callable[[Callable[[], object]], bool]
) -> None:
    replica = make_replica(tmp_path, (ROOT_KEY,))
    names = [path(f"/f{number}") for number in range(3)]
    answers: list[bool] = []

    class Watched(BytesContent):
        """What is read to be encoded."""

        def whole(self) -> bytes:
            answers.append(in_time(replica.wait))
            return super().whole()

        def pieces(self) -> Iterator[bytes]:
            answers.append(in_time(replica.wait))
            return super().pieces()

    contents = {name: Watched(b"new " + name[0]) for name in names}
    replica.commit(
        lambda author: (author.write(name, content) for name, content in contents.items()),
        contents=[(content, None) for content in contents.values()],
    )
    assert len(answers) >= len(names) and all(answers)
    assert [replica.read(name) for name in names] == [b"new f0", b"new f1", b"new f2"]
    replica.close()


def test_a_content_is_opened_while_a_transaction_is_under_way(
    tmp_path: pathlib.Path, in_time: Callable[[Callable[[], object]], bool]
) -> None:
    writer, reader, written = make_delivery(tmp_path, 2)
    reader.apply(written.entries, written.blocks)
    contents = [noise(0, 3000)]
    for number in range(3):
        # A delta each, so that all of them are needed for the last.
        contents.append(contents[-1][:-1] + bytes([number]))
        applied = writer.commit(partial(Author.write, path=path("/f0"), content=contents[-1]))
        reader.apply(applied.entries, applied.blocks)
    write = reader.attributes(path("/f0")).content
    assert write is not None
    opened: list[bytes] = []

    def make(author: Author):  # type: ignore[no-untyped-def]
        yield author.make_directory(path("/d"))
        assert in_time(lambda: opened.append(reader.open_write(write).whole()))

    reader.commit(make, key=ROOT_KEY)
    assert opened == [contents[-1]]
    writer.close()
    reader.close()


def test_a_content_of_the_transaction_under_way_is_read_by_who_makes_it(tmp_path: pathlib.Path) -> None:
    """Its entry and blocks are not committed, so only the log's own connection has them."""
    replica = make_replica(tmp_path, (ROOT_KEY,))
    read: list[bytes] = []

    def make(author: Author):  # type: ignore[no-untyped-def]
        yield author.write(path("/f"), b"new")
        write = replica.attributes(path("/f")).content
        assert write is not None
        read.append(replica.open_write(write).whole())

    replica.commit(make)
    assert read == [b"new"]
    replica.close()


@pytest.mark.logs("is damaged")
def test_damage_that_is_met_without_the_lock_is_told(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path, (ROOT_KEY,))
    applied = replica.commit(lambda author: author.write(path("/f"), noise(0, 3000)))
    replica.close()
    with contextlib.closing(sqlite3.connect(tmp_path / LOG_FILE)) as database, database:
        database.execute("DROP TRIGGER blocks_no_update")
        database.execute("UPDATE blocks SET data = zeroblob(length(data)) WHERE hash = ?", (applied.blocks[-1].hash,))
    (tmp_path / CACHE_FILE).unlink()
    replica = Replica(tmp_path, (ROOT_KEY,))
    write = replica.attributes(path("/f")).content
    assert write is not None
    with pytest.raises(DamagedLog):
        replica.open_write(write).whole()
    assert replica.damaged
    replica.close()


def test_no_log_is_closed_while_somebody_reads_it(tmp_path: pathlib.Path) -> None:
    """What a statement does while its connection is closed by another thread is undefined."""
    replica = make_replica(tmp_path, (ROOT_KEY,))
    written = replica.commit(lambda author: author.write(path("/f"), b"text"))
    replica.close()
    replica = Replica(tmp_path, (ROOT_KEY,))
    write = written.entries[0].hash
    closing = threading.Thread(target=replica.close, daemon=True)
    with replica._snapshots._connected() as snapshot:
        closing.start()
        while not replica._snapshots._is_closed:
            pass
        assert closing.is_alive()
        assert snapshot.contents.open(write).whole() == b"text"
    closing.join(DEADLINE)
    assert not closing.is_alive()
    with pytest.raises(StoreError):
        replica.block(written.blocks[0].hash)


def test_nobody_waits_for_a_large_content_on_which_a_small_one_builds(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, in_time: Callable[[Callable[[], object]], bool]
) -> None:
    """The first time after a restart it is compared with its hash, which takes long."""
    replica = make_replica(tmp_path, (ROOT_KEY,))
    large = noise(0, 2 * LARGE_CONTENT)
    for name, content in (("/f", large), ("/f", large[:60_000]), ("/other", noise(1, 3000))):
        replica.commit(partial(Author.write, path=path(name), content=content))
    replica.close()
    replica = Replica(tmp_path, (ROOT_KEY,))
    write, other = (replica.attributes(path(name)).content for name in ("/f", "/other"))
    assert write is not None
    assert other is not None
    answers: list[bool] = []

    def digest_slowly(content: Content) -> bytes:
        answers.append(in_time(replica.wait) and in_time(lambda: replica.open_write(other)))
        return digest_of(content)

    monkeypatch.setattr(basefs.log.cache, "digest_of", digest_slowly)
    assert replica.open_write(write).whole() == large[:60_000]
    assert answers == [True]
    replica.close()


def test_the_event_loop_does_not_wait_for_who_writes_to_the_log(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path / "log")
    held, turned = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def make(author: Author) -> Draft:
        held.set()
        in_time.append(turned.wait(DEADLINE))
        return author.make_directory(path("/d"))

    def hold() -> None:
        replica.commit(make)

    async def look() -> None:
        unused: Any = None
        loop, settings = asyncio.get_running_loop(), PropagationSettings(4, 0.0)
        propagation = Propagation(replica, unused, unused, lambda: None, loop, settings)
        checking = asyncio.ensure_future(propagation.look_again())
        await asyncio.sleep(0)
        turned.set()
        await checking

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(DEADLINE)
    asyncio.run(look())
    holder.join()
    replica.close()
    assert in_time == [True]
