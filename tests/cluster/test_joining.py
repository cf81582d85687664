"""Joining with an invitation: any member will do, the inviter adopts, and a second use is seen."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

import pytest

from basefs.daemon.config import Home
from basefs.daemon.keyfiles import default_keys
from basefs.log.keys import SigningKey
from basefs.replica.replica import Replica
from basefs.view.invitations import Invitation
from tests.support.cluster import NAME, ask
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


def start(node: Node, *options: str) -> None:
    """Make the filesystem on a node, and mount it."""
    node.basefs("bootstrap", NAME, "-i", node.endpoint, *options)
    node.mount(NAME)
    wait_until(lambda: any(member["own"] for member in ask(node, "members")), DEADLINE, "its own address")


def invite(node: Node, name: str, *options: str, path: str = "/") -> str:
    """The token that a member prints."""
    return node.basefs("invite", f"{NAME}:{path}", "--name", name, *options)


def join(node: Node, token: str) -> dict[str, Any]:
    """Join on a new machine, with the token in a file."""
    node.base.mkdir(parents=True, exist_ok=True)
    file = node.base / "invitation"
    file.write_text(token)
    found: dict[str, Any] = node.query("join", NAME, file)
    return found


def granters(node: Node, name: str) -> list[str]:
    """Who has granted a key, by name."""
    return [row["granted_by_name"] for row in node.query("keys", NAME) if row["name"] == name]


def is_adopted(node: Node, name: str) -> bool:
    """Whether a key hangs on a key that stays, as far as a node knows."""
    found = granters(node, name)
    return bool(found) and not any(by.startswith("invite ") for by in found)


def digits(node: Node) -> str:
    fingerprint: str = node.query("keys")[0]["fingerprint"]
    return fingerprint[:12]


@pytest.mark.logs("unknown key")
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_while_the_inviter_is_off(network: Callable[[int], NamespaceNetwork], *, closed: bool) -> None:
    alpha, beta, gamma = network(3).nodes
    start(alpha, *([] if closed else ["--open"]))
    (alpha.mountpoint / "hosts").write_text("1\n")
    alpha.settle(NAME)
    # With everything running it takes a moment.
    token = invite(alpha, "gamma")
    started = time.monotonic()
    assert join(gamma, token)["key_name"] == "gamma"
    gamma.mount(NAME)
    (gamma.mountpoint / "from gamma").write_text("x")
    sys.stdout.write(f"seconds from the paste to a change on a mount: {time.monotonic() - started:.1f}\n")
    for node in (alpha, gamma):
        wait_until(lambda node=node: is_adopted(node, "gamma"), DEADLINE, "gamma is adopted")  # type: ignore[misc]
    assert alpha.query("invite", NAME, "--list") == []
    assert (gamma.mountpoint / "from gamma").read_text() == "x"

    # So that the token names gamma as well.
    wait_until(lambda: alpha.alive(NAME) == 2, DEADLINE, "alpha knows where gamma is")
    (alpha.mountpoint / "web").mkdir()
    alpha.settle(NAME)
    token = invite(alpha, "beta", path="/web")
    wait_until(lambda: len(gamma.query("invite", NAME, "--list")) == 1, DEADLINE, "gamma has the invitation")
    alpha.basefs("unmount", NAME)
    done = join(beta, token)
    assert (done["path"], done["key_name"]) == ("/web", "beta")
    beta.mount(NAME)
    (beta.mountpoint / "web/from beta").write_text("y")
    with pytest.raises(PermissionError):
        (beta.mountpoint / "elsewhere").touch()
    wait_until((gamma.mountpoint / "web/from beta").exists, DEADLINE, "gamma shows what beta wrote")
    assert granters(gamma, "beta")[0].startswith("invite beta until ")
    (row,) = gamma.query("invite", NAME, "--list")
    assert (row["standing"], row["used_by"], row["path"]) == ("used", ["beta"], "/web")

    # Gamma has as much authority, and does not adopt in alpha's name.
    alpha.mount(NAME)
    for node in (alpha, beta, gamma):
        wait_until(lambda node=node: is_adopted(node, "beta"), DEADLINE, "beta is adopted")  # type: ignore[misc]
    root = next(row["name"] for row in alpha.query("keys", NAME) if row["own"])
    assert granters(gamma, "beta") == [root]
    (beta.mountpoint / "web/from beta").write_text("z")
    wait_until(lambda: (alpha.mountpoint / "web/from beta").read_text() == "z", DEADLINE, "alpha shows it")
    assert f"adopted beta ({digits(beta)}) at /web" in alpha.log(NAME)
    # The token is worth nothing.
    thief = Node(beta.base / "thief", namespace=beta.namespace)
    thief.base.mkdir()
    (thief.base / "invitation").write_text(token)
    refused = thief.spawn("join", NAME, thief.base / "invitation")
    assert refused.returncode == 1
    last = refused.stderr.splitlines()[-1]
    if closed:
        assert "the invitation is not known there: it was used" in last
    else:
        assert f"the invitation was used already, by beta ({digits(beta)})" in last
    assert thief.query("list") == []


def test_a_token_that_has_expired_is_adopted_by_nobody(
    network: Callable[[int], NamespaceNetwork],
) -> None:
    """A member that may only read has the token of another machine, and the inviter's node was off at its end."""
    alpha, beta, gamma = network(3).nodes
    start(alpha)
    for node, options in ((beta, ()), (gamma, ("--read-only",))):
        name = "beta" if node is beta else "gamma"
        join(node, alpha.basefs("invite", NAME, "--name", name, *options))
        node.mount(NAME)
        wait_until(lambda name=name: is_adopted(alpha, name), DEADLINE, "it is adopted")  # type: ignore[misc]
    alpha.basefs("unmount", NAME)
    invites = [SigningKey.generate() for _ in range(2)]
    with contextlib.closing(Replica(alpha.home / "fs" / NAME, default_keys(Home(alpha.home)))) as replica:
        for number, invite in enumerate(invites):
            end = Invitation(b"expired %d" % number, int(time.time()) - 86_400).encode()
            replica.commit(lambda author: author.grant((), end, invite.public))  # noqa: B023
        entries = list(replica.walk(()))
    # While alpha is off, gamma uses both of them: with one for itself, with one for a key that nobody knows.
    gamma.basefs("unmount", NAME)
    gamma_key = SigningKey.load(gamma.home / "key")
    with contextlib.closing(Replica(gamma.home / "fs" / NAME, invites)) as replica:
        replica.add(entries, [], everything=True)
        for invite, name, key in zip(invites, (b"gamma", b"sleeper"), (gamma_key, SigningKey.generate()), strict=True):
            replica.commit(lambda author: author.grant((), name, key.public), key=invite)  # noqa: B023
    gamma.mount(NAME)
    wait_until(lambda: len(beta.query("invite", NAME, "--list")) == 2, DEADLINE, "beta has both")
    alpha.mount(NAME)
    # The sleeper's grant has come, and alpha looks when a grant comes: its own of gamma ends that invitation alone.
    wait_until(lambda: len(granters(alpha, "sleeper")) == 1, DEADLINE, "alpha has what gamma did")
    alpha.basefs("grant", NAME, "gamma", gamma_key.public.hex())
    wait_until(lambda: len(alpha.query("invite", NAME, "--list")) == 1, DEADLINE, "gamma is adopted")
    for node in (alpha, beta):
        assert not is_adopted(node, "sleeper")
    alpha.basefs("invite", NAME, "--cancel", "expired 1")
    for node in (alpha, beta, gamma):
        wait_until(lambda node=node: node.query("invite", NAME, "--list") == [], DEADLINE, "both are over")  # type: ignore[misc]
        assert is_adopted(node, "gamma") and not granters(node, "sleeper")


@pytest.mark.logs("unknown key")
def test_a_reader_of_a_closed_filesystem(network: Callable[[int], NamespaceNetwork]) -> None:
    alpha, beta, gamma = network(3).nodes
    start(alpha)
    join(gamma, invite(alpha, "gamma"))
    gamma.mount(NAME)
    wait_until(lambda: alpha.alive(NAME) == 2, DEADLINE, "alpha knows where gamma is")
    token = alpha.basefs("invite", NAME, "--name", "beta", "--read-only")
    wait_until(lambda: len(gamma.query("invite", NAME, "--list")) == 1, DEADLINE, "gamma has the invitation")
    alpha.basefs("unmount", NAME)
    assert join(beta, token)["path"] is None
    beta.mount(NAME)
    (gamma.mountpoint / "news").write_text("x")
    wait_until((beta.mountpoint / "news").exists, DEADLINE, "beta reads what is new, while alpha is off")
    for where in ("here", ".readers/here", "news"):
        with pytest.raises(PermissionError):
            (beta.mountpoint / where).write_text("y")
    assert beta.query("status", NAME)["may_write"] == []
    alpha.mount(NAME)
    for node in (alpha, beta, gamma):
        wait_until(lambda node=node: is_adopted(node, "beta"), DEADLINE, "beta is adopted")  # type: ignore[misc]
    (gamma.mountpoint / "more").write_text("x")
    wait_until((beta.mountpoint / "more").exists, DEADLINE, "beta still reads")


@pytest.mark.logs("was used by 2 keys")
def test_a_token_used_in_two_halves_of_the_network_is_seen(network: Callable[[int], NamespaceNetwork]) -> None:
    made = network(4)
    alpha, beta, gamma, delta = made.nodes
    start(alpha)
    join(gamma, invite(alpha, "gamma"))
    gamma.mount(NAME)
    for node in (alpha, gamma):
        wait_until(lambda node=node: is_adopted(node, "gamma"), DEADLINE, "gamma is adopted")  # type: ignore[misc]
    # So that the token names gamma as well.
    wait_until(lambda: alpha.alive(NAME) == 2, DEADLINE, "alpha knows where gamma is")
    token = invite(alpha, "delta")
    wait_until(lambda: len(gamma.query("invite", NAME, "--list")) == 1, DEADLINE, "gamma has the invitation")
    made.split([beta, gamma])
    join(delta, token)
    delta.mount(NAME)
    join(beta, token)
    beta.mount(NAME)
    (beta.mountpoint / "from beta").write_text("x")
    wait_until((gamma.mountpoint / "from beta").exists, DEADLINE, "gamma shows what beta wrote")
    wait_until(lambda: is_adopted(alpha, "delta"), DEADLINE, "delta is adopted")
    made.join()
    wait_until(lambda: "was used by 2 keys" in alpha.log(NAME), DEADLINE, "alpha tells of both")
    for node in (alpha, gamma, delta):
        wait_until(lambda node=node: is_adopted(node, "delta"), DEADLINE, "delta is adopted")  # type: ignore[misc]
    assert not (gamma.mountpoint / "from beta").exists()
    rows = [row for row in alpha.query("keys", NAME, "--all") if row["granted_by_name"].startswith("invite delta ")]
    assert {row["fingerprint"][:12] for row in rows} == {digits(beta), digits(delta)}
    # The revoke itself may never reach it: nobody lets its key in.
    wait_until(lambda: "turned away by " in beta.basefs("status", NAME), DEADLINE, "beta's status says so")


@pytest.mark.logs("unknown key")
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_a_newcomer_that_is_stopped_until_it_is_adopted(
    network: Callable[[int], NamespaceNetwork], *, closed: bool
) -> None:
    alpha, beta, gamma = network(3).nodes
    start(alpha, *([] if closed else ["--open"]))
    join(gamma, invite(alpha, "gamma"))
    gamma.mount(NAME)
    # So that the token names gamma as well.
    wait_until(lambda: alpha.alive(NAME) == 2, DEADLINE, "alpha knows where gamma is")
    token = invite(alpha, "beta")
    wait_until(lambda: len(gamma.query("invite", NAME, "--list")) == 1, DEADLINE, "gamma has the invitation")
    alpha.basefs("unmount", NAME)
    join(beta, token)
    beta.mount(NAME)
    (beta.mountpoint / "first").write_text("x")
    wait_until((gamma.mountpoint / "first").exists, DEADLINE, "gamma shows what beta wrote")
    assert not is_adopted(gamma, "beta")
    # As in a power cut, with something on its disk that nobody else has seen.
    gamma.basefs("unmount", NAME)
    (beta.mountpoint / "alone").write_text("y")
    beta.settle(NAME)
    beta.kill(NAME)
    for node in (gamma, alpha):
        node.mount(NAME)
    for node in (gamma, alpha):
        wait_until(lambda node=node: is_adopted(node, "beta"), DEADLINE, "beta is adopted")  # type: ignore[misc]
    wait_until(lambda: alpha.query("invite", NAME, "--list") == [], DEADLINE, "the invitation is revoked")
    assert not is_adopted(beta, "beta"), "beta knows nothing of it"
    beta.basefs("unmount", NAME)
    beta.mount(NAME)
    wait_until(lambda: is_adopted(beta, "beta"), DEADLINE, "beta is told")
    (beta.mountpoint / "second").write_text("z")
    for node in (alpha, gamma):
        for name in ("first", "alone", "second"):
            wait_until((node.mountpoint / name).exists, DEADLINE, f"all show what beta wrote: {name}")
    assert beta.query("keys")[0]["public"] in {row["public"] for row in alpha.query("keys", NAME)}


#: Seconds from the paste of an invitation to the word that the machine has joined.
_JOINED = 5.0


@pytest.mark.alone
def test_a_machine_has_joined_within_seconds_of_the_paste(network: Callable[[int], NamespaceNetwork]) -> None:
    alpha, *others = network(4).nodes
    start(alpha)
    joined, written = [], []
    for number, node in enumerate(others):
        token = invite(alpha, f"node{number}")
        started = time.monotonic()
        join(node, token)
        joined.append(time.monotonic() - started)
        node.mount(NAME)
        (node.mountpoint / f"from {number}").write_text("x")
        written.append(time.monotonic() - started)
        wait_until((alpha.mountpoint / f"from {number}").exists, DEADLINE, "alpha shows what it wrote")
    for what, took in (("joined", joined), ("first change on a mount", written)):
        sys.stdout.write(f"seconds from the paste: {what}: {', '.join(f'{one:.1f}' for one in took)}\n")
    assert min(joined) <= _JOINED


def test_where_no_machine_is_nothing_is_said_of_ports(network: Callable[[int], NamespaceNetwork]) -> None:
    (alone,) = (there := network(1)).nodes
    nobody = f"{IPv4Address(alone.address) + 70}:18374"
    said = alone.spawn("get", NAME, nobody).stderr
    assert "(No route to host): is the address right, and that machine on?" in said and "port" not in said
    there.unplug(alone)
    said = alone.spawn("get", NAME, nobody).stderr
    assert "(Network is unreachable): has this machine a network, and a route there in 'ip route'?" in said
