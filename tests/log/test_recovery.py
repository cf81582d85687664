"""Recoveries are checked when they arrive: no log holds a false one, whichever way it came."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

import basefs.log.ed25519
import basefs.log.store
from basefs.errors import InvalidEntry
from basefs.log.check import check
from basefs.log.entries import MAX_ENTRY, Action, Entry
from basefs.log.extensions import MAX_RECOVERY_KEYS, MAX_RECOVERY_NUMBER, Extensions, Recovery, RecoveryKeys
from basefs.log.keys import SigningKey, verify
from basefs.log.repair import repair
from basefs.log.store import checksum_of
from basefs.replica.replica import LOG_FILE, Replica
from tests.support.helpers import (
    ALICE,
    BOB,
    GUARDIANS,
    HEIR,
    NONCE,
    ROOT_KEY,
    SECOND_HEIR,
    STRANGER,
    genesis,
    make_key,
    make_replica,
    recovery_keys,
    recovery_of,
)

BORN = genesis((ROOT_KEY, ALICE), recovery=recovery_keys())
ROOT = BORN[0]
#: The same keys, and another filesystem.
OTHER = genesis((ROOT_KEY, ALICE), nonce=bytes(28), recovery=recovery_keys())[0]
DIRECTORY = ALICE.sign(ROOT.hash, 1, Action.MKDIR, b"d")


def signed(
    recovery: Recovery | None, key: SigningKey = HEIR, parent: Entry = BORN[-1], content: bytes | None = None
) -> Entry:
    """A grant behind an entry, by default of the key by itself."""
    public = key.public if content is None else content
    return key.sign(parent.hash, 1, Action.GRANT, b"root", public, Extensions(recovery=recovery))


def true_one(key: SigningKey = HEIR, number: int = 1, parent: Entry = BORN[-1]) -> Entry:
    return signed(recovery_of(ROOT, number, key), key, parent)


def changed(recovery: Recovery, **fields: object) -> Recovery:
    return replace(recovery, **fields)  # type: ignore[arg-type]


def false_ones() -> dict[str, Entry]:
    """What an adversary may try who holds any key, and one of the recovery keys."""
    real = recovery_of(ROOT, 1, HEIR)
    (first, signature), (second, _) = real.signatures
    flipped = bytes((signature[0] ^ 1,)) + signature[1:]
    return {
        "no signature": signed(None),
        "one too few": signed(recovery_of(ROOT, 1, HEIR, GUARDIANS[:1])),
        "one too many": signed(recovery_of(ROOT, 1, HEIR, GUARDIANS)),
        "one key in two places": signed(changed(real, signatures=((first, signature), (second, signature)))),
        "a wrong signature": signed(changed(real, signatures=((first, flipped), real.signatures[1]))),
        "a key that does not exist": signed(changed(real, signatures=((first, signature), (9, signature)))),
        "for another filesystem": signed(recovery_of(OTHER, 1, HEIR)),
        "for another number": signed(changed(real, number=2)),
        "for another key": signed(real, SECOND_HEIR),
        "of a key that is granted": signed(real, ALICE),
        "of another key by this one": signed(real, HEIR, content=SECOND_HEIR.public),
        "of this key by another one": signed(real, ALICE, content=HEIR.public),
        "below the root": signed(real, HEIR, DIRECTORY),
        "a wrong signature of its own": replace(signed(real), signature=bytes(64)),
    }


@pytest.mark.parametrize("label", false_ones())
@pytest.mark.parametrize("is_known", [False, True], ids=["parent unknown", "parent known"])
def test_a_false_recovery_is_refused(label: str, tmp_path: pathlib.Path, *, is_known: bool) -> None:
    false = false_ones()[label]
    # What comes before its parent waits, unless it is refused at once.
    first, last = ([*BORN, DIRECTORY], [false]) if is_known else (BORN[:2], [false, BORN[2], DIRECTORY])
    replica = make_replica(tmp_path / "node", born=first)
    applied = replica.apply(last, [], peer="peer")
    entries = 3 + is_known if is_known else 4
    assert replica.totals()["entries"] == entries and replica.entry(false.hash) is None
    assert (len(applied.rejected), applied.ungranted) == ((1, 1) if label == "no signature" else (1, 0))
    assert replica.is_root_key(ROOT_KEY.fingerprint) and HEIR.public not in replica.members()
    # Nothing of it waits for what comes later either, but for what is a plain grant.
    replica.apply([true_one(number=7), false], [], peer="peer")
    assert (replica.entry(false.hash) is not None) == (label == "no signature")
    replica.close()


def test_a_recovery_is_refused_where_there_are_no_recovery_keys(tmp_path: pathlib.Path) -> None:
    born = genesis((ROOT_KEY, ALICE))
    replica = make_replica(tmp_path, born=born)
    for recovery in (recovery_of(ROOT, 1, HEIR), Recovery(1, ((0, bytes(64)),))):
        entry = signed(recovery, parent=born[-1])
        assert "no recovery keys" in replica.apply([entry], []).rejected[0]
    assert replica.totals()["entries"] == len(born)
    replica.close()


def test_a_true_recovery_comes_in_by_itself_in_any_order(tmp_path: pathlib.Path) -> None:
    announced = true_one()
    confirmed = HEIR.sign(announced.hash, 2, Action.GRANT, b"root", HEIR.public)
    written = HEIR.sign(ROOT.hash, 3, Action.MKDIR, b"heirs")
    for number, order in enumerate(itertools.permutations((ROOT, BORN[1], announced, confirmed, written))):
        replica = make_replica(tmp_path / str(number), born=[], identity=ROOT.hash)
        for entry in (*order, BORN[2]):
            replica.apply([entry], [], peer="peer")
        assert replica.totals()["entries"] == 6
        assert replica.is_root_key(HEIR.fingerprint) and HEIR.public in replica.members()
        assert [names for names, _ in replica.live_paths()] == [(), (b"heirs",)]
        replica.close()
        # A restart finds the same.
        replica = Replica(tmp_path / str(number))
        assert replica.is_root_key(HEIR.fingerprint) and replica.check_view() == []
        replica.close()
        assert check(tmp_path / str(number) / LOG_FILE) == []


def test_a_log_with_recoveries_is_checked_and_repaired_like_any_other(tmp_path: pathlib.Path) -> None:
    replica = make_replica(tmp_path, born=[*BORN, true_one()])
    replica.apply([HEIR.sign(true_one().hash, 2, Action.GRANT, b"root", HEIR.public)], [])
    replica.close()
    # A false one that somebody has put into the file.
    false = false_ones()["one too few"]
    data = false.encode()
    with contextlib.closing(sqlite3.connect(tmp_path / LOG_FILE)) as db, db:
        db.execute("DROP TRIGGER entries_no_update")
        db.execute(
            "UPDATE entries SET data = ?, hash = ?, checksum = ? WHERE hash = ?",
            (data, false.hash, checksum_of(data), true_one().hash),
        )
    assert any("recovery" in damage.problem and damage.lost for damage in check(tmp_path / LOG_FILE))
    findings, _ = repair(tmp_path / LOG_FILE)
    assert findings
    replica = Replica(tmp_path)
    # What builds on the lost one waits for it.
    assert replica.is_root_key(ROOT_KEY.fingerprint)
    replica.apply([true_one()], [])
    assert replica.is_root_key(HEIR.fingerprint)
    replica.close()
    assert check(tmp_path / LOG_FILE) == []


def test_false_recoveries_cost_no_more_than_wrong_signatures(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = make_replica(tmp_path, born=BORN)
    count = 0
    real_verify, real_times = basefs.log.ed25519._verify, basefs.log.ed25519._times

    def verified(message: bytes, signature: bytes, public: bytes) -> bool:
        nonlocal count
        count += 1
        return real_verify(message, signature, public)

    def times(point: basefs.log.ed25519._Point, factor: int) -> basefs.log.ed25519._Point:
        # As dear as many signatures, so only once somebody vouches for the key.
        raise AssertionError("an unknown key was looked at")

    entries = []
    for number in range(2000):
        key = make_key(f"fake {number}")
        recovery = Recovery(1 + number, ((0, bytes((number % 256,)) * 64), (1, bytes(64))))
        entries.append(signed(recovery, key))
    monkeypatch.setattr(basefs.log.ed25519, "_verify", verified)
    monkeypatch.setattr(basefs.log.ed25519, "_times", times)
    applied = replica.apply(entries, [], peer="peer")
    assert len(applied.rejected) == len(entries) and count <= len(entries)
    assert replica.totals()["entries"] == len(BORN) and replica.totals().get("waiting", 0) == 0
    monkeypatch.setattr(basefs.log.ed25519, "_times", real_times)
    # A true one: m signatures, and its own.
    count = 0
    replica.apply([true_one()], [])
    assert count == 3
    replica.close()


# -- encoding ---------------------------------------------------------------------------------------------------------


def keys(count: int) -> Sequence[SigningKey]:
    return [make_key(f"recovery key {number}") for number in range(count)]


def test_the_largest_ones_fit_into_an_entry() -> None:
    some = keys(MAX_RECOVERY_KEYS)
    root = ROOT_KEY.sign(
        NONCE, 1, Action.MKDIR, b"/", extensions=Extensions(is_open=True, recovery_keys=recovery_keys(some, 15))
    )
    recovery = recovery_of(root, MAX_RECOVERY_NUMBER, HEIR, some)
    entry = HEIR.sign(root.hash, 1, Action.GRANT, b"n" * 255, HEIR.public, Extensions(recovery=recovery))
    for one in (root, entry):
        assert Entry.decode(one.encode()) == one and len(one.encode()) < MAX_ENTRY
    verify(entry, HEIR.public, root)


def encoded(number: int, value: bytes) -> bytes:
    return bytes((number,)) + (bytes((len(value),)) if len(value) < 128 else b"\x80\x01") + value


KEY, SIGNED = GUARDIANS[0].public, b"\x00" + bytes(64)
NUMBER = (1).to_bytes(8, "big")


@pytest.mark.parametrize(
    "data",
    [
        encoded(6, b""),
        encoded(6, b"\x01"),
        encoded(6, b"\x00" + KEY),
        encoded(6, b"\x02" + KEY),
        encoded(6, b"\x01" + KEY[:-1]),
        encoded(6, b"\x01" + KEY + KEY),
        encoded(6, b"\x01" + b"".join(sorted((KEY, GUARDIANS[1].public), reverse=True))),
        encoded(8, b""),
        encoded(8, NUMBER),
        encoded(8, bytes(8) + SIGNED),
        encoded(8, NUMBER + SIGNED[:-1]),
        encoded(8, NUMBER + SIGNED + b"\x00"),
        bytes((8, 0x8A, 1)) + NUMBER + SIGNED + SIGNED,
    ],
)
def test_other_encodings_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidEntry):
        Extensions.decode(data)


@pytest.mark.parametrize(
    ("action", "name", "extensions"),
    [
        (Action.MKDIR, b"d", Extensions(recovery_keys=recovery_keys())),
        (Action.GRANT, b"key", Extensions(recovery_keys=recovery_keys())),
        (Action.MKDIR, b"/", Extensions(recovery=recovery_of(ROOT, 1, HEIR))),
        (Action.ADMIT, b"key", Extensions(recovery=recovery_of(ROOT, 1, HEIR))),
        (Action.REVOKE, b"key", Extensions(recovery=recovery_of(ROOT, 1, HEIR))),
    ],
)
def test_other_entries_have_no_such_extension(action: Action, name: bytes, extensions: Extensions) -> None:
    content = {Action.MKDIR: b"", Action.REVOKE: HEIR.fingerprint}.get(action, HEIR.public)
    with pytest.raises(InvalidEntry):
        HEIR.sign(bytes(28), 1, action, name, content, extensions)


@pytest.mark.parametrize(
    "wrong",
    [lambda: bytes(32), lambda: b"\x01" + bytes(31), lambda: ROOT_KEY.public],
    ids=["no key", "the identity", "the root key"],
)
def test_a_root_entry_with_such_a_recovery_key_is_refused(tmp_path: pathlib.Path, wrong: Callable[[], bytes]) -> None:
    publics = tuple(sorted((wrong(), BOB.public, STRANGER.public)))
    born = genesis((ROOT_KEY,), recovery=RecoveryKeys(2, publics))
    replica = Replica.create(tmp_path, born[0].hash)
    assert replica.apply(born, []).rejected
    assert replica.totals()["entries"] == 0
    replica.close()
