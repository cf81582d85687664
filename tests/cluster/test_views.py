"""Two nodes have equal logs and show something else: whoever asks learns which node it is."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable

import pytest

from basefs.daemon.config import Home
from tests.support.cluster import NAME, Cluster
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


#: The entries of /d/lost belong to no directory any more.
DAMAGE = """
    UPDATE entries SET directory = zeroblob(28) WHERE path = (SELECT id FROM paths WHERE name = CAST('lost' AS BLOB))
"""


def compared(node: Node) -> dict[str, str]:
    """What `basefs check --peers` says of each other node."""
    return {row["name"]: row["view"] for row in json.loads(node.spawn("check", NAME, "--peers", "--json").stdout)}


def test_a_tree_that_differs_is_found_by_whoever_asks(network: Callable[[int], NamespaceNetwork]) -> None:
    cluster = Cluster.start(network(3), profile="lan")
    one, two, three = cluster.nodes
    (one.mountpoint / "d").mkdir()
    for name in ("kept", "lost"):
        (one.mountpoint / "d" / name).write_text(name)
    for node in (two, three):
        wait_until((node.mountpoint / "d" / "lost").exists, cluster.patience, "the file arrives")
    cluster.wait_until_equal(cluster.patience)
    wait_until(lambda: list(compared(one).values()) == ["same", "same"], DEADLINE, "all show the same")
    assert one.spawn("check", NAME, "--peers").returncode == 0
    two.basefs("unmount", NAME)
    with contextlib.closing(sqlite3.connect(Home(two.home).directory(NAME) / "log.db")) as database, database:
        database.execute("DROP TRIGGER entries_no_update")
        assert database.execute(DAMAGE).rowcount > 0
    two.mount(NAME, "--owners", "--profile", "lan")
    cluster.wait_for_members()
    assert two.spawn("cat", f"{NAME}:/d/lost").returncode != 0 and two.basefs("cat", f"{NAME}:/d/kept") == "kept"
    assert len(cluster.root_hashes()) == 1, "nothing else shows it"
    names = {row["address"]: row["name"] for row in one.query("members", NAME)}
    (name,) = (called for address, called in names.items() if address.startswith(f"{two.address}:"))
    for node in (one, three):
        wait_until(lambda node=node: compared(node).get(name) == "differs", DEADLINE, "it differs")  # type: ignore[misc]
        assert sorted(compared(node).values()) == ["differs", "same"]
        done = node.spawn("check", NAME, "--peers")
        assert done.returncode == 1 and f"{name}\tdiffers\n" in done.stdout
        rows = json.loads(node.spawn("doctor", NAME, "--json").stdout)
        (row,) = [row for row in rows if row["subject"] == "view"]
        assert row["severity"] == "problem" and name in row["what"] and "basefs check" in row["remedy"]
    assert list(compared(two).values()) == ["differs", "differs"]
