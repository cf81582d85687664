"""Signatures of large deliveries, in several threads."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from basefs.log import verifying
from basefs.log.entries import Action
from basefs.log.keys import SigningKey, verify

KEY = SigningKey.from_seed(bytes(32))
OTHER = SigningKey.from_seed(bytes(31) + b"\x01")
COUNT = 300


@pytest.fixture(scope="module")
def entries():
    return [KEY.sign(bytes(28), number, Action.MKDIR, b"d%d" % number) for number in range(COUNT)]


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_each_signature_has_its_own_answer(cores, entries):
    wrong = {0, 1, 99, 100, 149, 150, 151, 200, COUNT - 1}
    unknown = {2, 101, COUNT - 2}
    signed = [
        (replace(entry, signature=bytes(64)) if number in wrong else entry, None if number in unknown else KEY.public)
        for number, entry in enumerate(entries)
    ]
    signed.append((entries[7], OTHER.public))
    found = verifying.find_wrong(signed, cores=cores)
    assert {number for number, error in enumerate(found) if error is not None} == wrong | {COUNT}
    assert len(found) == COUNT + 1
    assert entries[99].hash.hex()[:12] in str(found[99])


def test_threads_work_at_the_same_time(entries, monkeypatch):
    both = threading.Barrier(2, timeout=60)
    seen = set()

    def check(entry, public, root):
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            both.wait()
        verify(entry, public, root)

    monkeypatch.setattr(verifying, "verify", check)
    assert verifying.find_wrong([(entry, KEY.public) for entry in entries], cores=2) == [None] * COUNT
    assert len(seen) == 2


def test_a_few_are_not_worth_a_thread(entries, monkeypatch):
    monkeypatch.setattr(verifying, "_pool", None)
    assert verifying.find_wrong([(entry, KEY.public) for entry in entries[:100]], cores=2) == [None] * 100
    assert verifying.find_wrong([]) == []
