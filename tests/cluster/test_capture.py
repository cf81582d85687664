"""An observer of the whole network finds no name and no content of a closed filesystem, and each of an open one."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest

from tests.support.capture import Haystack, capture, forms, lzw
from tests.support.cluster import NAME
from tests.support.helpers import noise
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]

SYNC_PORT = 18375
#: Bytes of a content that are looked for: no chance brings them about.
PIECE = 24
LARGE = 200_000
#: Of names; the rest of each says what it is the name of.
CANARY = "canary-7f3a"
#: What Go's compress/lzw makes of four of these words, one of which is the next form of another.
LZW = bytes.fromhex("00c7847113464e1e1002091a4438b0e0c1840e0302")


def test_the_search_finds_each_form() -> None:
    wanted, between = noise(1, PIECE), noise(2, 50)
    assert Haystack([between]).find(wanted) == []
    for name, form in forms(wanted).items():
        assert name in Haystack([between + form + between]).find(wanted)
    text = f"password of {CANARY}\n".encode()
    assert Haystack([between + zlib.compress(100 * text) + between]).find(text) == ["raw"]
    assert lzw(LZW) == b"canary canary canary canary"
    message = b"\x09\x82\xa4Algo\x00\xa3Buf\xda" + len(LZW).to_bytes(2, "big") + LZW
    assert Haystack([message + between]).find(b"canary canary canary") == ["raw"]


def live(alpha: Node, beta: Node, gamma: Node, *options: str) -> dict[str, bytes]:
    """The life of a filesystem: two machines join, files of each kind change, one machine is expelled.

    Returns what an observer looks for, names and parts of contents, by what it is.
    """
    small, large, sealed, gossiped, late = (noise(seed, size) for seed, size in enumerate((300, LARGE, 300, 120, 300)))
    text = f"password = {CANARY}-text\n"
    names = {what: f"{CANARY}-{what}" for what in ("file", "new-name", "gossiped", "target", "key", "late", "last")}
    directory, inside = f"{CANARY} Verzeichnis für alle", f"{CANARY}-inside"
    alpha.basefs("bootstrap", NAME, "-i", alpha.endpoint, *options)
    alpha.mount(NAME)
    join(alpha, beta, names["key"])
    join(alpha, gamma, "gamma")
    everywhere = (alpha, beta, gamma)

    here = alpha.mountpoint
    (here / names["file"]).write_bytes(small)
    (here / directory).mkdir()
    (here / directory / inside).write_bytes(large)
    (here / "text").write_text(500 * text)
    (here / "link").symlink_to(names["target"])
    for node in everywhere:
        until_there(node, f"{directory}/{inside}", large)
        until_there(node, "text", (500 * text).encode())
    (gamma.mountpoint / names["file"]).rename(gamma.mountpoint / names["new-name"])
    (gamma.mountpoint / names["new-name"]).write_bytes(sealed)
    until_there(alpha, names["new-name"], sealed)

    # One is away, compares its log afterwards, and fetches what it lacks.
    gamma.basefs("unmount", NAME)
    (here / names["late"]).write_bytes(late)
    alpha.settle(NAME)
    gamma.mount(NAME)
    until_there(gamma, names["late"], late)

    # Without sessions that stay open it is gossip that brings changes.
    for node in everywhere:
        node.basefs("unmount", NAME)
    for node in everywhere:
        node.mount(NAME, "--no-push")
    wait_until(lambda: alpha.alive(NAME) == 3, DEADLINE, "alpha sees all")
    (here / names["gossiped"]).write_bytes(gossiped)
    for node in everywhere:
        until_there(node, names["gossiped"], gossiped)

    alpha.basefs("expel", NAME, "gamma")
    wait_until(lambda: all(row["name"] != "gamma" for row in beta.query("keys", NAME)), DEADLINE, "beta has the revoke")
    (here / names["last"]).write_bytes(b"")
    until_there(beta, names["last"], b"")
    parts = {"small": small, "sealed": sealed, "gossiped": gossiped, "late": late}
    return (
        {f"name of {what}": name.encode() for what, name in {**names, "d": directory, "inside": inside}.items()}
        | {f"content of {what}": content[100 - PIECE : 100] for what, content in parts.items()}
        | {f"byte {at} of the large one": large[at : at + PIECE] for at in range(1000, LARGE, 40_000)}
        | {"text": text.encode()}
    )


def join(inviter: Node, node: Node, name: str) -> None:
    """Invite a machine, join there, and mount."""
    node.base.mkdir(parents=True)
    (node.base / "invitation").write_text(inviter.basefs("invite", NAME, "--name", name))
    node.basefs("join", NAME, node.base / "invitation")
    node.mount(NAME)
    wait_until(lambda: adopted(inviter, name), DEADLINE, f"{name} is adopted")


def adopted(node: Node, name: str) -> bool:
    found = [row["granted_by_name"] for row in node.query("keys", NAME) if row["name"] == name]
    return bool(found) and not found[0].startswith("invite ")


def until_there(node: Node, name: str, content: bytes) -> None:
    path = node.mountpoint / name
    wait_until(lambda: path.read_bytes() == content, DEADLINE, f"{node.address} has {name}")


@pytest.mark.logs("unknown key")
@pytest.mark.parametrize("readable", ["closed", "open"])
def test_a_life_as_the_network_sees_it(network: Callable[[int], NamespaceNetwork], readable: str) -> None:
    """What is found in an open filesystem shows that it would be found in a closed one."""
    whole = network(3)
    with capture(whole.switch) as traffic:
        secrets = live(*whole.nodes, *(["--open"] if readable == "open" else []))
    assert traffic.dropped == 0
    streams = traffic.streams(SYNC_PORT)
    sync = Haystack(streams)
    gossip = Haystack([*traffic.datagrams, *traffic.streams(SYNC_PORT - 1), *traffic.others])
    # Every node took part, in both directions.
    ends = {end for one, _, other, _ in traffic.segments for end in ((one, other), (other, one))}
    assert len(ends) == 6
    assert sum(map(len, streams)) > 2 * LARGE and sum(map(len, traffic.datagrams)) > 20_000
    in_sync = {what: sync.find(secret) for what, secret in secrets.items()}
    in_gossip = {what: gossip.find(secret) for what, secret in secrets.items()}
    if readable == "closed":
        assert not any(in_sync.values()), in_sync
        assert not any(in_gossip.values()), in_gossip
    else:
        missed = [what for what in secrets if not in_sync[what] and not in_gossip[what]]
        assert not missed
        assert in_gossip["name of gossiped"] and in_gossip["content of gossiped"]
