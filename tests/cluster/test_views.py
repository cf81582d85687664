"""Two nodes have equal logs and show something else: each finds the path, and says so wherever somebody looks."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable

import pytest

from basefs.daemon.config import Home
from tests.support.cluster import NAME, Cluster
from tests.support.namespaces import NamespaceNetwork, in_namespace
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.scrape import scrape
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


_METRICS = ("--metrics", "127.0.0.1:9464")

#: The entries of /d/lost belong to no directory any more.
DAMAGE = """
    UPDATE entries SET directory = zeroblob(28) WHERE path = (SELECT id FROM paths WHERE name = CAST('lost' AS BLOB))
"""


def differing(node: Node) -> list[dict[str, str]]:
    """The labels of `basefs_view_differs`, as far as it is 1."""
    assert node.namespace is not None
    with in_namespace(node.namespace):
        found = scrape(9464)
    return [dict(labels) for (name, labels), value in found.items() if name == "basefs_view_differs" and value == 1]


def row_status(node: Node, name: str) -> str:
    """What a node calls another one."""
    (status,) = (row["status"] for row in node.query("members", NAME) if row["name"] == name)
    return str(status)


def test_a_tree_that_differs_is_an_alarm_that_names_the_path(network: Callable[[int], NamespaceNetwork]) -> None:
    cluster = Cluster.start(network(2), profile="lan", options=_METRICS)
    one, two = cluster.nodes
    (one.mountpoint / "d").mkdir()
    for name in ("kept", "lost"):
        (one.mountpoint / "d" / name).write_text(name)
    wait_until(lambda: (two.mountpoint / "d" / "lost").exists(), cluster.patience, "the file arrives")
    cluster.wait_until_equal(cluster.patience)
    two.basefs("unmount", NAME)
    with contextlib.closing(sqlite3.connect(Home(two.home).directory(NAME) / "log.db")) as database, database:
        database.execute("DROP TRIGGER entries_no_update")
        assert database.execute(DAMAGE).rowcount > 0
    two.mount(NAME, "--owners", "--profile", "lan", *_METRICS)
    cluster.wait_for_members()
    assert not (two.mountpoint / "d" / "lost").exists()
    assert len(cluster.root_hashes()) == 1, "nothing else shows it"
    for node, other in ((one, two), (two, one)):
        wait_until(lambda node=node: bool(node.query("status", NAME)["differing"]), DEADLINE, "the alarm")  # type: ignore[misc]
        (found,) = node.query("status", NAME)["differing"]
        assert found["path"] == "/d/lost"
        assert found["peer"] == f"{other.address}:{other.port + 1}"
        wait_until(lambda node=node, found=found: differing(node) == [found], DEADLINE, "the metric")  # type: ignore[misc]
        assert "shows something else at /d/lost" in node.basefs("status", NAME)
        rows = json.loads(node.spawn("doctor", NAME, "--json").stdout)
        (row,) = [row for row in rows if row["subject"] == "view"]
        assert row["severity"] == "problem" and "/d/lost" in row["what"] and "basefs check" in row["remedy"]
        assert "shows something else at /d/lost" in node.log(NAME)

    # It is gone with the member, and back with it.
    two.basefs("unmount", NAME)
    wait_until(lambda: not one.query("status", NAME)["differing"], DEADLINE, "no alarm")
    wait_until(lambda: differing(one) == [], DEADLINE, "no metric")
    assert "shows something else" not in one.basefs("status", NAME)
    two.mount(NAME, "--owners", "--profile", "lan", *_METRICS)
    wait_until(lambda: bool(one.query("status", NAME)["differing"]), DEADLINE, "the alarm")
    # A member that is lost counts until it is forgotten, and so does what it has shown.
    two.kill(NAME)
    (lost,) = (row["name"] for row in one.query("members", NAME) if not row["own"])
    wait_until(lambda: row_status(one, lost) == "failed", DEADLINE, "Serf has lost it")
    assert one.query("status", NAME)["differing"]
    rows = json.loads(one.spawn("doctor", NAME, "--json").stdout)
    assert "--forget" in next(row["remedy"] for row in rows if row["subject"] == "view")
    one.basefs("members", NAME, "--forget", lost)
    wait_until(lambda: not one.query("status", NAME)["differing"], DEADLINE, "no alarm")
