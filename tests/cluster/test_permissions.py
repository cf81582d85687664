"""A key granted on a directory: writes there, and nowhere else, on every node."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import NAME, Cluster
from tests.support.namespaces import NamespaceNetwork
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


def test_a_key_granted_on_a_directory_writes_there_and_nowhere_else(
    network: Callable[[int], NamespaceNetwork],
) -> None:
    cluster = Cluster.start(network(3), grant_at="/a")
    first, *others = cluster.nodes
    (first.mountpoint / "elsewhere").write_text("not theirs")
    (first.mountpoint / "b").mkdir()
    cluster.wait_until_equal(DEADLINE)
    for number, node in enumerate(others):
        (node.mountpoint / "a" / "below").mkdir(exist_ok=True)
        (node.mountpoint / "a" / "below" / f"by{number}").write_text("allowed")
        # Refused when it is opened, not when it is closed.
        for path, flags in (
            ("elsewhere", os.O_WRONLY),
            ("elsewhere", os.O_RDWR | os.O_TRUNC),
            ("new", os.O_WRONLY | os.O_CREAT),
            ("b/new", os.O_WRONLY | os.O_CREAT),
        ):
            with pytest.raises(OSError) as refused:
                os.open(node.mountpoint / path, flags)
            assert refused.value.errno == errno.EACCES
        for attempt in (
            lambda root: (root / "c").mkdir(),
            lambda root: (root / "elsewhere").unlink(),
            lambda root: (root / "elsewhere").chmod(0o600),
            lambda root: (root / "elsewhere").rename(root / "a" / "moved"),
            lambda root: (root / "c").symlink_to("elsewhere"),
        ):
            with pytest.raises(PermissionError):
                attempt(node.mountpoint)
        assert stat.S_IMODE((node.mountpoint / "elsewhere").stat().st_mode) == 0o444
        assert stat.S_IMODE((node.mountpoint / "a").stat().st_mode) == 0o755
        assert (node.mountpoint / "elsewhere").read_text() == "not theirs"
    for node in cluster.nodes:
        for number in range(len(others)):
            path = node.mountpoint / "a" / "below" / f"by{number}"
            wait_until(lambda path=path: path.read_text() == "allowed", DEADLINE, f"{path} arrives")  # type: ignore[misc]


def test_a_revoked_key_writes_nowhere_and_what_it_wrote_stays(cluster: Cluster) -> None:
    first, second, third = cluster.nodes
    (second.mountpoint / "file").write_text("by the second")
    cluster.wait_until_equal(DEADLINE)
    first.basefs("revoke", f"{NAME}:/", "node2")
    wait_until(lambda: _is_refused(second.mountpoint / "file"), DEADLINE, "the revoke arrives at the key's own node")
    cluster.wait_until_equal(DEADLINE)
    for node in cluster.nodes:
        assert (node.mountpoint / "file").read_text() == "by the second"
    (third.mountpoint / "file").write_text("by the third")
    wait_until(lambda: (second.mountpoint / "file").read_text() == "by the third", DEADLINE, "others go on")


def _is_refused(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY))
    except PermissionError:
        return True
    return False
