"""What applications see while a plan is published in more than one transaction."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from basefs.fs.publish.plan import MAX_STEPS

from basefs.errors import StoreError
from basefs.replica.replica import Applied, Replica
from tests.fs.local import Local
from tests.support.helpers import ROOT_KEY, path

#: So many that they need three transactions.
MANY = [f"/d/{number}" for number in range(2 * MAX_STEPS)]
#: A time that an application has chosen, nanoseconds.
OLD = 1_500_000_000 * 10**9


def copy(local: Local) -> None:
    """What `cp -a` does for a directory of files: the time of the directory comes last."""
    if not local.fs.working.exists(path("/d")):
        local.fs.namespace.make_directory(path("/d"), 0o755)
    for text in MANY:
        local.save(text, text.encode())
        local.fs.metadata.set_times(path(text), OLD)
    local.fs.metadata.set_times(path("/d"), OLD)


@pytest.mark.parametrize(("most", "transactions"), [(1, 8), (3, 3), (MAX_STEPS, 1)])
def test_so_many_steps_are_a_transaction(local: Local, most: int, transactions: int) -> None:
    for number in range(8):
        local.save(f"/{number}", b"x")
    seen: list[Applied] = []
    local.replica.subscribe(seen.append)
    local.publish(most=most)
    assert len(seen) == transactions and local.fs.unpublished() == 0


class TestACopiedDirectory:
    def test_shows_all_of_its_names_at_every_moment(self, local: Local) -> None:
        copy(local)
        listed, loaded = [], []

        def look(applied: Applied) -> None:
            listed.append(local.listing("/d").keys())
            loaded.append({text: local.load(text) for text in MANY})

        local.replica.subscribe(look)
        local.publish()
        assert len(listed) > 2
        assert listed == [{text.encode()[3:] for text in MANY}] * len(listed)
        assert loaded == [{text: text.encode() for text in MANY}] * len(listed)
        assert local.fs.metadata.stat(path("/d")).mtime == OLD
        assert local.fs.working.unpublished() == 0

    def test_can_be_removed_at_every_moment(self, local: Local) -> None:
        """`rm -r` removes what it has listed, and fails if a name is not there or anything is left."""
        for moment in range(3):
            copy(local)
            seen: list[Applied] = []

            def remove(applied: Applied, moment: int = moment, seen: list[Applied] = seen) -> None:
                seen.append(applied)
                if len(seen) == moment + 1:
                    for name in local.listing("/d"):
                        local.fs.namespace.unlink((b"d", name))
                    local.fs.namespace.remove_directory(path("/d"))

            local.replica.subscribe(remove)
            local.publish()
            assert len(seen) > moment
            local.publish()
            assert b"d" not in local.listing("/")
            assert b"d" not in local.replica.names_in(())

    def test_every_change_is_known_to_be_of_this_node(self, local: Local) -> None:
        """Otherwise the mirror would do it once more."""
        local.fs.namespace.make_directory(path("/d"), 0o755)
        local.publish()
        copy(local)
        told, foreign = [], []

        def look(applied: Applied) -> None:
            told.extend(c.path for c in applied.changes)
            foreign.extend(c.path for c in applied.changes if c.path and c.path not in local.fs.working.in_flight)

        local.replica.subscribe(look)
        local.publish()
        assert path("/d") in told
        assert foreign == []

    def test_keeps_its_names_when_the_process_ends_between_two_transactions(self, surrounded: Local) -> None:
        local = surrounded
        copy(local)

        def commit_once(commit: Callable[[], Applied]) -> Applied:
            local.surround(stop)
            return commit()

        def stop(commit: Callable[[], Applied]) -> Applied:
            raise StoreError("the process ends")

        local.surround(commit_once)
        with pytest.raises(StoreError):
            local.publish()
        local.replica.close()
        again = Local(Replica(local.replica.directory, [ROOT_KEY]))
        assert again.listing("/d").keys() == {text.encode()[3:] for text in MANY}
        assert {again.load(text) for text in MANY} == {text.encode() for text in MANY}
        again.publish()
        assert again.replica.attributes(path("/d")).mtime == OLD
        local.replica = again.replica


def test_a_file_takes_the_place_of_a_large_directory(local: Local) -> None:
    copy(local)
    local.publish()
    for text in MANY:
        local.fs.namespace.unlink(path(text))
    local.fs.namespace.remove_directory(path("/d"))
    local.save("/d", b"a file")
    local.publish()
    assert local.replica.read(path("/d")) == b"a file"
    assert local.fs.working.unpublished() == 0
