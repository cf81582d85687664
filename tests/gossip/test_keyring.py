"""The key of encrypted gossip, between real agents: another one, and what a member does to the keys of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from basefs.gossip.config import KEYRING_FILE
from tests.gossip.helpers import Node, nodes, random_entry, run, until

KEY, NEWER = "cg8StVXbQJ0gPvMd9o7yrg==", "HvY8ubRZMgafUOWvrOadwX1S2vkDJlKGcH+1Q8Kh6xM="

pytestmark = pytest.mark.serf


@pytest.mark.logs("ncrypt", "join", "Unknown child process pid")
def test_who_has_no_key_or_the_old_one_hears_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        a = Node(tmp_path, "a", encrypt_key=KEY)
        b = Node(tmp_path, "b", encrypt_key=KEY, join=(a.address,))
        stranger = Node(tmp_path, "s", join=(a.address, b.address))
        away = Node(tmp_path, "c", encrypt_key=KEY, join=(a.address, b.address))
        async with nodes(a, b):
            await until(lambda: a.sees("b") and b.sees("a"), "two peers")
            for node in (a, b):
                await node.gossip.encrypt(NEWER)
            await until(lambda: all(node.gossip.connected for node in (a, b)))
            await until(lambda: a.sees("b") and b.sees("a"), "two peers with the new key")
            entry = random_entry(200)
            b.gossip.send([entry])
            await until(lambda: a.has_entry(entry))
            async with nodes(stranger, away):
                assert not away.sees("a") and not away.sees("b")
                await away.gossip.encrypt(NEWER)
                await until(lambda: away.sees("a", "b") and a.sees("b", "c"), "the node that was away")
                entry = random_entry(200)
                a.gossip.send([entry])
                await until(lambda: away.has_entry(entry))
                assert not stranger.has_entry(entry) and stranger.peers == []

    run(main())


@pytest.mark.logs("ncrypt", "join", "Unknown child process pid", "a member has changed the keys of Serf")
def test_keys_that_a_member_sets_for_all_are_replaced_by_each(tmp_path: Path) -> None:
    """As with `basefs serf NAME keys -install`, `-use` and `-remove` on any node."""

    async def main() -> None:
        a = Node(tmp_path, "a", encrypt_key=KEY)
        b = Node(tmp_path, "b", encrypt_key=KEY, join=(a.address,))
        keyrings = [tmp_path / name / "run" / KEYRING_FILE for name in "ab"]

        def have(key: str) -> bool:
            return all(json.loads(path.read_text()) == [key] for path in keyrings)

        async with nodes(a, b):
            await until(lambda: a.sees("b") and b.sees("a"), "two peers")
            assert have(KEY)
            for node in (a, b):
                pid = node.gossip.agent_pid
                await node.gossip.restore_keys()
                assert node.gossip.agent_pid == pid, "nothing is wrong"
            for command, key in (("install-key", NEWER), ("use-key", NEWER), ("remove-key", KEY)):
                await b.gossip.call(command, {"Key": key})
            await until(lambda: have(NEWER), "all have the key of the member")
            for node in (a, b):
                await node.gossip.restore_keys()
            await until(lambda: have(KEY), "each has its own again")
            await until(lambda: a.sees("b") and b.sees("a"), "two peers with their own key")

    run(main())
