"""What one node writes, the others have: everything, byte by byte.  How soon is measured: docs/network.md."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import NAME, Cluster, differences, snapshot
from tests.support.namespaces import NamespaceNetwork
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


def test_a_node_that_comes_back_has_what_was_changed_meanwhile(shared: Callable[[int], Cluster]) -> None:
    cluster = shared(3)
    writer, _, away = cluster.nodes
    for number in range(100):
        (writer.mountpoint / f"old{number}").write_text(f"old {number}")
    cluster.wait_until_equal(DEADLINE)
    away.basefs("unmount", NAME)
    for number in range(100):
        (writer.mountpoint / f"old{number}").write_text(f"changed {number}")
        (writer.mountpoint / f"new{number}").write_text(f"new {number}")
    expected = snapshot(writer.mountpoint)
    away.mount(NAME, "--owners")
    wait_until(lambda: snapshot(away.mountpoint) == expected, DEADLINE, "the node that came back has all changes")


def test_two_halves_that_both_wrote_agree(shared: Callable[[int], Cluster]) -> None:
    _write_on_both_sides_of_a_cut(shared(3), until_noticed=False)


def test_two_halves_agree_after_a_cut_that_serf_has_noticed(network: Callable[[int], NamespaceNetwork]) -> None:
    # The lan profile notices within seconds, wan takes a minute or two.
    _write_on_both_sides_of_a_cut(Cluster.start(network(3), profile="lan"), until_noticed=True)


def _write_on_both_sides_of_a_cut(cluster: Cluster, *, until_noticed: bool) -> None:
    left, middle, right = cluster.nodes
    (left.mountpoint / "shared").write_text("before")
    (left.mountpoint / "directory").mkdir()
    cluster.wait_until_equal(DEADLINE)
    cluster.network.unplug(right)
    writers = [
        threading.Thread(target=_write_for_a_while, args=(left.mountpoint, "left")),
        threading.Thread(target=_write_for_a_while, args=(right.mountpoint, "right")),
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    if until_noticed:
        wait_until(lambda: cluster.alive(middle) == 2, 2 * DEADLINE, "Serf notices the cut")
    assert len(cluster.root_hashes()) > 1
    cluster.network.plug_in(right)
    cluster.wait_until_equal(DEADLINE)
    trees = [snapshot(node.mountpoint) for node in cluster.nodes]
    assert trees[0] == trees[1] == trees[2]
    for side in ("left", "right"):
        for number in range(ROUNDS):
            assert trees[0][f"directory/{side}{number}".encode()][2] == f"{side} {number}".encode()
            assert trees[0][f"both/{side}{number}".encode()][2] == f"{side} {number}".encode()
    last = str(ROUNDS - 1).encode()
    assert trees[0][b"shared"][2] in {b"left " + last, b"right " + last}


#: Rounds of writes during a cut, one every PAUSE seconds.
ROUNDS = 40
PAUSE = 0.1


def _write_for_a_while(mountpoint: Path, side: str) -> None:
    (mountpoint / "both").mkdir()
    pacer = threading.Event()
    for number in range(ROUNDS):
        (mountpoint / "shared").write_text(f"{side} {number}")
        (mountpoint / "directory" / f"{side}{number}").write_text(f"{side} {number}")
        (mountpoint / "both" / f"{side}{number}").write_text(f"{side} {number}")
        pacer.wait(PAUSE)


def test_tools_work_the_same_on_every_node(shared: Callable[[int], Cluster]) -> None:
    cluster = shared(3)
    first, second, third = cluster.nodes
    repository = second.mountpoint / "repository"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-C", str(repository)]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "file").write_text("one\n")
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    cluster.wait_until_equal(DEADLINE)
    elsewhere = ["git", "-c", "safe.directory=*", "-C", str(third.mountpoint / "repository")]
    log = subprocess.run([*elsewhere, "log", "--oneline"], capture_output=True, text=True, check=True)
    assert log.stdout.endswith(" one\n")
    subprocess.run([*elsewhere, "fsck", "--strict"], check=True, capture_output=True)
    subprocess.run(["sed", "-i", "s/one/two/", str(third.mountpoint / "repository" / "file")], check=True)
    wait_until(lambda: (first.mountpoint / "repository" / "file").read_text() == "two\n", DEADLINE, "sed -i arrives")
    shutil.rmtree(first.mountpoint / "repository")
    wait_until(lambda: not (third.mountpoint / "repository").exists(), DEADLINE, "rm -r arrives")


def test_a_copy_of_etc_arrives(shared: Callable[[int], Cluster], tmp_path: Path) -> None:
    cluster = shared(3)
    # Copied once first, because something on the machine may change /etc while the test looks at it.
    source = tmp_path / "etc"
    subprocess.run(["cp", "-a", "/etc", source], check=True)
    writer, *others = cluster.nodes
    subprocess.run(["cp", "-a", source, writer.mountpoint], check=True)
    expected = snapshot(source)
    assert len(expected) > 100

    def has_arrived(target: Path) -> Callable[[], bool]:
        return lambda: not differences(expected, snapshot(target))

    for node in others:
        wait_until(has_arrived(node.mountpoint / "etc"), cluster.patience, f"{node.address} has all of /etc")
        diff = ["diff", "-r", "--no-dereference", str(source), str(node.mountpoint / "etc")]
        assert subprocess.run(diff, capture_output=True, text=True, check=False).stdout == ""
    assert cluster.wait_until_equal(DEADLINE) >= 0


SIZES = [0, 1, 482, 483, 484, 100_000, 10_000_000]


def test_odd_files_and_names_arrive_equal(shared: Callable[[int], Cluster]) -> None:
    writer, *others = shared(3).nodes
    top = os.fsencode(writer.mountpoint)
    for size in SIZES:
        # Random bytes cannot be compressed, so the blocks have these sizes too.
        with open(os.path.join(top, b"size%d" % size), "wb") as file:
            file.write(os.urandom(size))
    for name in (
        b"n" * 255,
        b"with spaces and\nnewlines\n",
        b"not utf-8 \xff\xfe\x80",
        b"-rf *",
        b"\xe2\x82\xac",
        b"%2F",
    ):
        with open(os.path.join(top, name), "wb") as file:
            file.write(name)
    os.symlink(b"t" * 4000, os.path.join(top, b"long link"))
    deep = os.path.join(top, *[b"d%d" % depth for depth in range(50)])
    os.makedirs(deep)
    with open(os.path.join(deep, b"bottom"), "wb") as file:
        file.write(b"of it")
    many = os.path.join(top, b"many")
    os.mkdir(many)
    for number in range(2000):
        with open(os.path.join(many, b"file%d" % number), "wb") as file:
            file.write(b"%d" % number)
    expected = snapshot(writer.mountpoint)
    assert len(expected) == len(SIZES) + 6 + 1 + 50 + 1 + 1 + 2000
    for node in others:
        wait_until(
            lambda node=node: not differences(expected, snapshot(node.mountpoint)),  # type: ignore[misc]
            DEADLINE,
            f"{node.address} has the same",
        )
