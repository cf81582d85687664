"""Machines that ask to write: members list them, and grant the very key that was shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.test_joining import invite, is_adopted, join, start
from tests.management.terminal import on_a_terminal
from tests.support.cluster import NAME, ask
from tests.support.helpers import ALICE, BOB
from tests.support.namespaces import NamespaceNetwork
from tests.support.node import Node
from tests.support.patience import DEADLINE
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.serf]


def pending(node: Node) -> list[dict[str, Any]]:
    """What a member lists."""
    found: list[dict[str, Any]] = ask(node, "pending")
    return found


def asking(node: Node) -> set[str]:
    """The public keys that a member lists."""
    return {row["public"] for row in pending(node)}


def own(node: Node) -> dict[str, str]:
    key: dict[str, str] = node.query("keys")[0]
    return key


def claim(node: Node, key: str) -> None:
    """Have a node's Serf agent ask with a key, whoever has it."""
    node.basefs("serf", NAME, "tags", "-set", f"ask={key}")


def writes_at(node: Node) -> list[str]:
    found: list[str] = ask(node, "status")["may_write"]
    return found


def may_write(node: Node) -> str:
    """What its status says about that, in words."""
    lines = dict(line.split("\t", 1) for line in node.basefs("status", NAME).splitlines())
    return lines["may write"]


def test_a_machine_asks_until_its_key_is_granted(network: Callable[[int], NamespaceNetwork]) -> None:
    alpha, beta = network(2).nodes
    start(alpha, "--open")
    (alpha.mountpoint / "web").mkdir()
    beta.basefs("get", NAME, alpha.endpoint)
    # It does not ask without a network.
    beta.mount(NAME, "--single-node")
    assert "basefs grant" in may_write(beta) and "asked" not in may_write(beta)
    beta.basefs("unmount", NAME)
    beta.mount(NAME)
    key = own(beta)
    wait_until(lambda: asking(alpha) == {key["public"]}, DEADLINE, "alpha lists beta")
    (row,) = alpha.query("keys", NAME, "--pending")
    assert (row["fingerprint"], row["address"], row["proved"]) == (key["fingerprint"], beta.endpoint, False)
    line = f"basefs accept {NAME} {key['fingerprint']}"
    assert may_write(beta).startswith("nowhere (has asked to write); ") and may_write(beta).endswith(line)
    found = beta.spawn("doctor", NAME, "--json").stdout
    assert "may write anywhere in cluster; it has asked to" in found and line in found
    assert own(alpha)["public"] not in asking(beta)

    for words in (["gamma"], [key["fingerprint"][:12], "-y"], [row["name"], "-y"], [key["fingerprint"]]):
        refused = alpha.spawn("accept", f"{NAME}:/web", *words)
        assert refused.returncode != 0 and refused.stderr.count("\n") == 1, words
    assert asking(alpha) == {key["public"]}
    done = alpha.basefs("accept", f"{NAME}:/web", key["fingerprint"], "-y", "--name", "beta")
    assert done == "granted: beta may write at /web and below\n"
    wait_until(lambda: writes_at(beta) == ["/web"], DEADLINE, "beta may write")
    (beta.mountpoint / "web/page").write_text("x")
    assert asking(alpha) == set()
    wait_until(lambda: ask(beta, "status")["asks"] is None, DEADLINE, "beta asks no more")
    # It asks again once its key is revoked.
    alpha.basefs("revoke", f"{NAME}:/web", "beta")
    wait_until(lambda: asking(alpha) == {key["public"]}, DEADLINE, "beta asks again")


def test_what_was_shown_is_granted_whatever_others_claim(network: Callable[[int], NamespaceNetwork]) -> None:
    alpha, beta, gamma = network(3).nodes
    start(alpha, "--open")
    for node in (beta, gamma):
        node.basefs("get", NAME, alpha.endpoint)
    true = own(beta)
    beta.mount(NAME)
    gamma.mount(NAME, "--hostname", true["fingerprint"])
    wait_until(lambda: asking(alpha) == {true["public"], own(gamma)["public"]}, DEADLINE, "alpha lists both")
    by_key = {row["public"]: row for row in pending(alpha)}
    name = by_key[true["public"]]["name"]

    def answer(words: list[str], reply: str) -> str:
        code = 0 if reply == "y\n" else 3
        return on_a_terminal(alpha, "accept", NAME, *words, code=code, typed=iter([reply]))

    assert true["public"] in answer([true["fingerprint"]], "n\n"), "whatever gamma calls itself"
    shown = answer([name], "n\n")
    assert true["public"] in shown and true["fingerprint"] in shown and "claims to write" in shown
    assert f"Let this key, as {name}, write at / and below? [y/N]: n" in shown.replace("\r", "")
    # While the question stands, beta's claim becomes another key: what was shown is granted.
    claimed = ALICE.public.hex()

    def change() -> Any:
        claim(beta, claimed)
        wait_until(lambda: claimed in asking(alpha), DEADLINE, "alpha hears the other claim")
        yield "y\n"

    on_a_terminal(alpha, "accept", NAME, name, typed=change())
    granted = {row["public"] for row in alpha.query("keys", NAME)}
    assert true["public"] in granted and claimed not in granted
    # A key that two claim has no name of its own, and one name is never given to a second key.
    wait_until(lambda: writes_at(beta) == ["/"], DEADLINE, "beta may write")
    wait_until(lambda: ask(beta, "status")["asks"] is None, DEADLINE, "beta asks no more")
    for node in (beta, gamma):
        claim(node, claimed)
    # Not two claims of any key: the one that gamma has had may still be among them.
    wait_until(lambda: [row["public"] for row in pending(alpha)] == [claimed] * 2, DEADLINE, "two claim it")
    fingerprint = ALICE.fingerprint.hex()
    assert "2 machines ask with that key" in alpha.spawn("accept", NAME, fingerprint, "-y").stderr
    assert "is the name of the key" in alpha.spawn("accept", NAME, fingerprint, "-y", "--name", name).stderr
    # What is no key is not listed, nor what may write already.
    for text in ("x", BOB.public.hex().upper(), BOB.public.hex() + " ", "00" * 32, own(alpha)["public"]):
        claim(gamma, text)
        wait_until(lambda: [row["address"] for row in pending(alpha)] == [beta.endpoint], DEADLINE, f"{text} is none")
        claim(gamma, BOB.public.hex())
        wait_until(lambda: BOB.public.hex() in asking(alpha), DEADLINE, "gamma is heard")


@pytest.mark.logs("unknown key")
def test_in_a_closed_filesystem_a_machine_is_believed_for_its_own_key(
    network: Callable[[int], NamespaceNetwork],
) -> None:
    alpha, beta, gamma = network(3).nodes
    start(alpha)
    (alpha.mountpoint / "web").mkdir()
    alpha.settle(NAME)
    join(beta, invite(alpha, "beta", path="/web"))
    join(gamma, alpha.basefs("invite", NAME, "--name", "gamma", "--read-only"))
    for node in (beta, gamma):
        node.mount(NAME)
    for name in ("beta", "gamma"):
        wait_until(lambda name=name: is_adopted(alpha, name), DEADLINE, f"{name} is adopted")  # type: ignore[misc]
    assert alpha.spawn("keys", NAME, "--pending").stderr == (
        f"no machine asks to write; a machine that is no member cannot ask: 'basefs invite {NAME}' or "
        f"'basefs grant {NAME}' lets it in\n"
    )
    assert alpha.spawn("accept", NAME, "delta").stderr.endswith(f"or 'basefs grant {NAME}' lets it in\n")
    # Who was invited to read does not ask.
    assert "asked" not in may_write(gamma)
    (alpha.mountpoint / "web").rmdir()
    key = own(beta)
    wait_until(lambda: asking(alpha) == {key["public"]}, DEADLINE, "beta reads, and asks to write")
    assert pending(alpha)[0]["proved"]
    assert "(has asked to write); " in may_write(beta)
    # A member that asks with another key than its own is not listed.
    claim(gamma, BOB.public.hex())
    wait_until(
        lambda: BOB.public.hex() in alpha.basefs("serf", NAME, "members"), DEADLINE, "alpha hears of gamma's claim"
    )
    # The daemon has heard of it as well when it lists what beta has claimed afterwards.
    beta.basefs("serf", NAME, "tags", "-delete", "ask")
    wait_until(lambda: not asking(alpha), DEADLINE, "beta asks no more, and gamma's claim counts for nothing")
    claim(beta, key["public"])
    wait_until(lambda: bool(asking(alpha)), DEADLINE, "alpha lists beta again")
    assert asking(alpha) == {key["public"]}
    claim(gamma, own(gamma)["public"])
    wait_until(lambda: asking(alpha) == {key["public"], own(gamma)["public"]}, DEADLINE, "its own one is believed")
    name = next(row["name"] for row in pending(alpha) if row["public"] == key["public"])
    shown = on_a_terminal(alpha, "accept", NAME, name, "--name", "beta", typed=iter(["y\n"]))
    assert "asks to write with the key" in shown
    (alpha.mountpoint / "file").write_text("x")
    wait_until(lambda: writes_at(beta) == ["/"], DEADLINE, "beta may write")
    wait_until((beta.mountpoint / "file").exists, DEADLINE, "it is there")
    (beta.mountpoint / "file").write_text("y")
