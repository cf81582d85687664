"""The key that writes most."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from basefs.daemon.api.messages import BusiestKey, RunningNode, Status, Summary
from basefs.daemon.busiest import ALARM_BYTES, ALARM_ENTRIES, SPAN, WriteWatch, Written
from basefs.daemon.metrics.collector import DaemonCollector
from basefs.log.content import BytesContent
from basefs.log.entries import Action
from basefs.log.extensions import Extensions
from basefs.replica.replica import Replica
from tests.support.helpers import ALICE, ROOT_KEY, in_blocks, make_replica, path


class Hours:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def granted(directory: Path) -> Replica:
    """A log in which Alice may write."""
    replica = make_replica(directory)
    replica.commit(lambda author: author.grant((), b"alice", ALICE.public))
    return replica


def write(replica: Replica, name: str, size: int) -> None:
    replica.commit(lambda author: author.write(path(name), BytesContent(b"x" * size)))


def claim(replica: Replica, size: int) -> None:
    """Take in a file of Alice's that says it has so many bytes."""
    named, _ = in_blocks(b"x")
    replica.apply([ALICE.sign(replica.identity, 1, Action.WRITE, b"claims", named, Extensions(size))], [])


def test_the_key_with_most_entries_is_named(tmp_path: Path) -> None:
    replica = granted(tmp_path)
    watch = WriteWatch(replica)
    assert watch.busiest() is None
    claim(replica, 10)
    assert watch.busiest() == Written(ALICE.fingerprint, 1, 10)
    write(replica, "/a", 5)
    write(replica, "/b", 7)
    assert watch.busiest() == Written(ROOT_KEY.fingerprint, 2, 12)
    replica.close()


def test_what_was_written_long_ago_is_forgotten(tmp_path: Path) -> None:
    replica, clock = make_replica(tmp_path), Hours()
    watch = WriteWatch(replica, clock)
    write(replica, "/a", 5)
    clock.now += SPAN
    assert watch.busiest() == Written(ROOT_KEY.fingerprint, 1, 5), "an hour has just ended"
    clock.now += SPAN
    assert watch.busiest() is None
    write(replica, "/b", 7)
    clock.now += 2 * SPAN
    assert watch.busiest() is None
    replica.close()


@pytest.mark.logs("writes much")
def test_much_is_an_alarm_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    replica = granted(tmp_path)
    watch = WriteWatch(replica)
    claim(replica, ALARM_BYTES)
    found = watch.busiest()
    assert found is not None and found.is_alarming
    claim(replica, ALARM_BYTES + 1)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(f"the key {ALICE.fingerprint.hex()[:12]} writes much: 1 entries, {ALARM_BYTES} bytes")
    assert Written(ALICE.fingerprint, ALARM_ENTRIES, 0).is_alarming
    replica.close()


def test_the_metrics_name_it() -> None:
    summary = Summary("00", "00", open=False, member=True, damaged=0, incomplete=0, **dict.fromkeys(TOTALS, 0))
    node = RunningNode(1.0, False, None, busiest=BusiestKey(None, "ab" * 28, 3, 5, False))
    status = Status(summary, None, "", 0, [], [], [], node=node)

    def ask(_: Any) -> Any:
        return status

    found = {
        family.name: (family.samples[0].labels, family.samples[0].value)
        for family in DaemonCollector("conf", "1", ask).collect()
        if family.name.startswith("basefs_busiest")
    }
    labels = {"key": "ab" * 6}
    assert found == {"basefs_busiest_key_entries": (labels, 3), "basefs_busiest_key_bytes": (labels, 5)}


#: What a summary says of the size of a log.
TOTALS = ("entries", "blocks", "bytes", "orphans")
