"""`basefs invite` and `basefs join`, on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from basefs.daemon.adoption import Adopter
from basefs.daemon.config import SYNC_PORT_OFFSET, NodeAddress, parse_address
from basefs.daemon.token import Token
from basefs.errors import PermissionDenied
from basefs.log.entries import KEY_ACTIONS, Action
from basefs.log.keys import SigningKey
from basefs.replica.replica import Applied, Replica
from basefs.sync.net.service import SyncService
from basefs.sync.net.tls import Credentials
from basefs.sync.net.transport import SessionContext
from basefs.view.invitations import Invitation
from tests.management.terminal import on_a_terminal
from tests.management.test_get import leftovers, served
from tests.support.commands import Cli
from tests.support.helpers import ALICE, path
from tests.support.mounts import temporary_directory
from tests.support.node import Node
from tests.support.patience import DEADLINE


@pytest.fixture
def member(cli: Cli) -> Cli:
    """An open filesystem with an address to join."""
    cli("bootstrap", "conf", "-i", "10.77.0.1", "--open")
    with cli.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/web")))
    return cli


@pytest.fixture
def secret(cli: Cli) -> Cli:
    """The same, closed."""
    cli("bootstrap", "conf", "-i", "10.77.0.1")
    with cli.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/web")))
    return cli


class Machine:
    """Another machine: a home of its own."""

    def __init__(self, cli: Cli, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cli = Cli(base, cli.capsys)
        self.monkeypatch = monkeypatch

    def join(self, text: str, *arguments: object) -> tuple[int, str, str]:
        """`basefs join` with a text on its standard input."""
        with self.monkeypatch.context() as patch:
            patch.setenv("BASEFS_HOME", str(self.cli.home.path))
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
            return self.cli.run("join", *arguments)

    def fails(self, text: str, *arguments: object, code: int = 1) -> str:
        """The last line with which it fails, the only one but for members that were given up."""
        found, out, err = self.join(text, *arguments)
        assert (found, out) == (code, ""), err
        *given_up, last = err.splitlines()
        assert all(line.endswith("; trying the next") for line in given_up)
        assert last.startswith("basefs: ")
        return last


@pytest.fixture
def machine(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """The machine that joins."""
    with temporary_directory() as directory:
        yield Machine(cli, directory, monkeypatch)


def invited(cli: Cli, *arguments: object) -> Token:
    """A token, from the one line that the command prints."""
    (line,) = cli("invite", *arguments).splitlines()
    return Token.parse(line)


def at(token: Token, *addresses: str) -> str:
    """The same token for members at other addresses."""
    found = tuple(map(parse_address, addresses))
    return str(replace(token, addresses=found))


def granted(replica: Replica, at: str) -> dict[bytes, bytes]:
    """Name -> public key of the grants in force on a path."""
    return {grant.entry.name: grant.entry.content for grant in replica.grants(path(at))}


@contextlib.contextmanager
def closed(replica: Replica, changed: Callable[[], None] = lambda: None) -> Iterator[str]:
    """Serve a log to its members alone; gives the address.  `changed` is called after each change of the members."""
    loop = asyncio.new_event_loop()
    (own,) = replica.keys
    shared = SessionContext(credentials=Credentials(own, replica.members()))
    service = SyncService(replica, ("127.0.0.1", 0), peers=list, max_sessions=16, shared=shared)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    trusting: list[Future[None]] = []

    def applied(change: Applied) -> None:
        if any(entry.action in KEY_ACTIONS for entry in change.entries):
            trusting.append(asyncio.run_coroutine_threadsafe(service.trust(replica.members(), own), loop))
            changed()

    replica.subscribe(applied)
    try:
        asyncio.run_coroutine_threadsafe(service.start(), loop).result(DEADLINE)
        yield f"127.0.0.1:{service.port - SYNC_PORT_OFFSET}"
    finally:
        for future in trusting:
            future.result(DEADLINE)
        asyncio.run_coroutine_threadsafe(service.stop(), loop).result(DEADLINE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


# -- invite ------------------------------------------------------------------------------------------------------------


def test_one_line_with_all_that_the_new_machine_needs(member: Cli) -> None:
    token = invited(member, "conf:/web", "--name", "gamma", "--expires", "2h")
    assert token.name == "conf"
    assert token.addresses == (NodeAddress("10.77.0.1", 18374),)
    key = SigningKey.from_seed(token.seed)
    with member.replica("conf") as replica:
        assert token.identity == replica.identity
        assert token.keys == (replica.keys[0].public, SigningKey.load(member.home.root_key("conf")).public)
        assert granted(replica, "/web") == {Invitation(b"gamma", token.until).encode(): key.public}
    assert 7100 < token.until - time.time() <= 7200
    # The secret is nowhere but in the line.
    for file in member.home.path.rglob("*"):
        assert not file.is_file() or token.seed not in file.read_bytes()


def test_json(member: Cli) -> None:
    made = json.loads(member("invite", "conf", "--json"))
    token = Token.parse(made["invitation"])
    assert made["fingerprint"] == SigningKey.from_seed(token.seed).fingerprint.hex()
    assert (made["path"], made["machine"], made["until"]) == ("/", "", token.until)
    assert abs(made["until"] - time.time() - 86_400) < 600


def test_a_terminal_is_told_what_to_do_with_it(member: Cli, node: Node) -> None:
    shown = on_a_terminal(node, "invite", "conf")
    assert "basefs join" in shown and "valid until" in shown


def test_the_invitations_in_force(member: Cli) -> None:
    assert "no invitation is in force" in member.empty("invite", "conf", "--list")
    invited(member, "conf:/web", "--name", "gamma")
    invited(member, "conf")
    rows = json.loads(member("invite", "conf", "--list", "--json"))
    assert [(row["path"], row["machine"], row["standing"], row["used_by"]) for row in rows] == [
        ("/", "", "open", []),
        ("/web", "gamma", "open", []),
    ]
    (line,) = member("invite", "conf:/web", "--list").splitlines()
    assert line.split("\t")[0] == "gamma" and line.split("\t")[2] == "open"


def test_cancelling_one(member: Cli, machine: Machine) -> None:
    token = invited(member, "conf", "--name", "gamma")
    digits = SigningKey.from_seed(token.seed).fingerprint.hex()[:12]
    assert member("invite", "conf", "--cancel", "gamma") == f"cancelled: the invitation {digits} to /\n"
    assert "no invitation is in force" in member.empty("invite", "conf", "--list")
    assert "no invitation gamma is in force" in member.fails("invite", "conf", "--cancel", "gamma")
    with member.replica("conf") as replica, served(replica) as address:
        said = machine.fails(at(token, address))
    assert "was cancelled, or has expired: ask for another one" in said
    assert leftovers(machine.cli) == []


def test_cancelling_by_digits_and_what_is_ambiguous(member: Cli) -> None:
    first, second = (
        invited(member, where, "--name", "gamma", "--expires", time) for where, time in (("conf", "1h"),) * 2
    )
    message = member.fails("invite", "conf", "--cancel", "gamma", code=2)
    assert "more than one invitation is for gamma: give the fingerprint" in message
    member("invite", "conf", "--cancel", SigningKey.from_seed(first.seed).fingerprint.hex()[:10])
    (left,) = json.loads(member("invite", "conf", "--list", "--json"))
    assert left["fingerprint"] == SigningKey.from_seed(second.seed).fingerprint.hex()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--expires", "10s"), "from 1m to 365d"),
        (("--expires", "366d"), "from 1m to 365d"),
        (("--expires", "tomorrow"), "is not a length of time"),
        (("--expires", "5 M"), "is ambiguous"),
        (("--expires", "9" * 5000 + "h"), "is not a length of time"),
        (("--name", "n" * 201), "is no name for a machine"),
        (("--name", "a\nb"), "is no name for a machine"),
    ],
)
def test_bad_arguments(member: Cli, arguments: tuple[str, str], words: str) -> None:
    assert words in member.fails("invite", "conf", *arguments, code=2)
    assert "no invitation is in force" in member.empty("invite", "conf", "--list")


def test_what_cannot_be_invited_to(member: Cli) -> None:
    assert "/nothing does not exist" in member.fails("invite", "conf:/nothing")
    assert member.run("genkey", "-f")[0] == 0
    assert "no key of this node may write at /web" in member.fails("invite", "conf:/web")


def test_a_name_that_another_key_has(member: Cli) -> None:
    member("grant", "conf", "alice", ALICE.public.hex())
    assert "alice is the name of the key" in member.fails("invite", "conf", "--name", "alice", code=2)


def test_without_an_address_nobody_could_join(conf: Cli) -> None:
    assert "no address of a member of conf is known" in conf.fails("invite", "conf", code=2)
    with conf.replica("conf") as replica:
        assert len(granted(replica, "/")) == 1


def test_a_grant_cannot_be_named_like_an_invitation(member: Cli) -> None:
    name = Invitation(b"alice", 2_000_000_000).encode().decode()
    assert "'basefs invite'" in member.fails("grant", "conf", name, ALICE.public.hex(), code=2)


# -- join --------------------------------------------------------------------------------------------------------------


def test_the_new_machine_may_write_at_once(member: Cli, machine: Machine) -> None:
    token = invited(member, "conf:/web", "--name", "gamma")
    with member.replica("conf") as replica:
        with served(replica) as address:
            code, out, err = machine.join(f"{at(token, address)}\n", "--json")
            assert (code, err) == (0, "")
            joined = json.loads(out)
        own = SigningKey.load(machine.cli.home.default_key)
        assert joined == {
            "name": "conf",
            "identity": replica.identity.hex(),
            "entries": replica.totals()["entries"],
            "blocks": replica.totals()["blocks"],
            "path": "/web",
            "key_name": "gamma",
        }
        # It hangs on the invitation, until a node of the issuer's adopts it.
        assert granted(replica, "/web")[b"gamma"] == own.public
        with machine.cli.replica("conf") as theirs:
            assert theirs.root_hash() == replica.root_hash()
            theirs.commit(lambda author: author.write(path("/web/f"), b"gamma's"))
        Adopter(replica).look()
        assert granted(replica, "/web") == {b"gamma": own.public}
    rows = member("keys", "conf", "--all").splitlines()
    assert sum(row.startswith("gamma\t") for row in rows) == 2
    assert sum("\trevoked\t" in row and row.startswith("invite gamma until ") for row in rows) == 1
    # Its private key has not left it.
    secret = own.seed()
    for file in member.home.path.rglob("*"):
        assert not file.is_file() or secret not in file.read_bytes()


def test_a_machine_that_only_reads(member: Cli, machine: Machine) -> None:
    invited(member, "conf", "--read-only")
    token = invited(member, "conf", "--read-only", "--name", "monitor")
    with member.replica("conf") as replica:
        with served(replica) as address:
            code, out, err = machine.join(at(token, address))
        assert (code, err) == (0, "")
        assert out.splitlines()[1] == "joined: monitor may read"
        own = SigningKey.load(machine.cli.home.default_key).public
        # Also while the inviter is off.
        assert own in replica.members()
        Adopter(replica).look()
        assert own in replica.members()
        admits = [grant.entry for grant in replica.grants(path("/.readers")) if grant.entry.content == own]
        assert [(admit.action, admit.fingerprint) for admit in admits] == [(Action.ADMIT, replica.keys[0].fingerprint)]
        with machine.cli.replica("conf") as theirs:
            theirs.add(list(replica.walk(())), [], everything=True)
            assert theirs.root_hash() == replica.root_hash()
            for where in ("/f", "/web/f", "/.readers/f"):
                with pytest.raises(PermissionDenied):
                    theirs.commit(lambda author, where=where: author.write(path(where), b"x"))  # type: ignore[misc]
    (row,) = (row for row in json.loads(member("keys", "conf", "--json")) if row["name"] == "monitor")
    assert (row["path"], row["depth"], row["standing"]) == ("/.readers", None, "valid")


def test_a_reader_reads_everything(member: Cli) -> None:
    assert "without a path" in member.fails("invite", "conf:/web", "--read-only", code=2)


def test_lines_for_people_and_another_name(member: Cli, machine: Machine) -> None:
    token = invited(member, "conf", "--name", "gamma")
    file = machine.cli.base / "invitation"
    with member.replica("conf") as replica, served(replica) as address:
        file.write_text(at(token, address))
        code, out, err = machine.join("", "mine", file)
    assert (code, err) == (0, "")
    first, second = out.splitlines()
    assert first.startswith(f"mine {token.identity.hex()} ")
    assert second == "joined: gamma may write at / and below"
    assert leftovers(machine.cli) == ["mine"]


@pytest.mark.parametrize("arguments", [(), ("-",), ("conf",), ("conf", "-")])
def test_where_the_invitation_is_read(member: Cli, machine: Machine, arguments: tuple[str, ...]) -> None:
    assert "that is no invitation" in machine.fails("hello", *arguments, code=2)


def test_a_file_alone(machine: Machine) -> None:
    file = machine.cli.base / "invitation"
    assert f"cannot read {file}: No such file" in machine.fails("", file, code=2)
    file.write_bytes(b"\xff\xfe")
    assert "that is no invitation" in machine.fails("", file, code=2)


@pytest.mark.parametrize("place", [0, 1])
def test_never_as_an_argument(member: Cli, machine: Machine, place: int) -> None:
    text = str(invited(member, "conf"))
    said = machine.fails("", *(["conf"] * place), text, code=2)
    assert "an invitation is no argument" in said and text[10:] not in said


def test_a_terminal_does_not_show_it(member: Cli, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_a_terminal(node, "join", "other", typed=iter(["basefs1-nonsense\n"]), prompt="nvitation: ", code=2)
    assert "nvitation: " in shown and "nonsense" not in shown and "damaged or cut off" in shown


def test_an_expired_one(member: Cli, machine: Machine) -> None:
    token = invited(member, "conf")
    late = replace(token, until=1_000_000_000)
    said = machine.fails(str(late), code=2)
    assert said.startswith("basefs: the invitation expired at 2001-") and "by the clock of this machine" in said
    assert not machine.cli.home.default_key.exists()


def test_members_are_tried_one_after_another(member: Cli, machine: Machine) -> None:
    token = invited(member, "conf")
    stranger = Machine(machine.cli, machine.cli.base / "stranger", machine.monkeypatch)
    with machine.monkeypatch.context() as patch:
        patch.setenv("BASEFS_HOME", str(stranger.cli.home.path))
        stranger.cli("bootstrap", "else")
    with (
        member.replica("conf") as replica,
        served(replica) as address,
        stranger.cli.replica("else") as other,
        served(other) as elsewhere,
    ):
        code, _, err = machine.join(at(token, "127.0.0.1:1", elsewhere, address))
    assert code == 0, err
    first, second = err.splitlines()
    assert first.startswith("127.0.0.1:1: cannot reach") and first.endswith("; trying the next")
    assert f"{elsewhere}: another filesystem answers there: " in second


def test_nobody_answers(member: Cli, machine: Machine) -> None:
    token = invited(member, "conf")
    assert "cannot reach 127.0.0.1:2" in machine.fails(at(token, "127.0.0.1:1"))
    assert leftovers(machine.cli) == []


def test_a_member_that_has_not_heard_of_it(member: Cli, machine: Machine) -> None:
    with temporary_directory() as directory:
        member("export", "conf", directory / "archive")
        away = Machine(machine.cli, directory, machine.monkeypatch)
        with machine.monkeypatch.context() as patch:
            patch.setenv("BASEFS_HOME", str(away.cli.home.path))
            away.cli("import", "conf", directory / "archive")
        token = invited(member, "conf")
        with away.cli.replica("conf", ALICE) as theirs, served(theirs) as address:
            assert "this member has not received the invitation yet" in machine.fails(at(token, address))
            with member.replica("conf") as replica, served(replica) as other:
                code, _, err = machine.join(at(token, address, other))
    assert (code, err.count("\n")) == (0, 1)


def test_a_token_that_was_used(member: Cli, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    token = invited(member, "conf", "--name", "gamma")
    with temporary_directory() as directory, member.replica("conf") as replica, served(replica) as address:
        text = at(token, address)
        assert machine.join(text)[0] == 0
        second = Machine(machine.cli, directory, monkeypatch)
        key = SigningKey.load(machine.cli.home.default_key).fingerprint.hex()[:12]
        expected = f"the invitation was used already, by gamma ({key})"
        assert expected in second.fails(text)
        Adopter(replica).look()
        assert expected in second.fails(text)
        assert leftovers(second.cli) == []


def test_a_machine_that_lost_the_connection_joins_again(member: Cli, machine: Machine) -> None:
    token = invited(member, "conf", "--name", "gamma")
    with member.replica("conf") as replica, served(replica) as address:
        for name in ("first", "again"):
            code, out, err = machine.join(at(token, address), name)
            assert (code, err) == (0, "") and "gamma may write" in out
        Adopter(replica).look()
        assert machine.join(at(token, address), "late")[0] == 0


def test_nobody_else_leads_the_machine_elsewhere(member: Cli, machine: Machine) -> None:
    """The public half of an invite key is in the log, so that any key holder can grant it, too."""
    member("grant", "conf", "alice", ALICE.public.hex())
    token = invited(member, "conf:/web", "--name", "gamma")
    invite = SigningKey.from_seed(token.seed).public
    with member.replica("conf", ALICE) as replica:
        name = Invitation(b"gamma", token.until).encode()
        replica.commit(lambda author: author.make_directory(path("/aaa")))
        replica.commit(lambda author: author.grant(path("/aaa"), name, invite))
        replica.commit(lambda author: author.grant(path("/web"), name + b" ", invite))
    with member.replica("conf") as replica, served(replica) as address:
        code, out, err = machine.join(at(token, address), "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["path"] == "/web"


def test_two_uses_are_seen_by_members(member: Cli, machine: Machine) -> None:
    """By a thief, whose client does not mind."""
    token = invited(member, "conf", "--name", "gamma")
    invite = SigningKey.from_seed(token.seed)
    with member.replica("conf", invite) as replica:
        replica.commit(lambda author: author.grant((), b"thief", ALICE.public))
        replica.commit(lambda author: author.grant((), b"gamma", SigningKey.generate().public))
    (row,) = json.loads(member("invite", "conf", "--list", "--json"))
    assert (row["standing"], sorted(row["used_by"])) == ("used", ["gamma", "thief"])
    fallen = member("invite", "conf", "--cancel", "gamma").splitlines()
    assert sorted(fallen[1:]) == ["fallen with it: gamma at /", "fallen with it: thief at /"]


def test_a_machine_that_came_after_the_end_is_granted_or_turned_away(member: Cli) -> None:
    invites = {name: SigningKey.generate() for name in ("gamma", "delta", "nobody")}
    with member.replica("conf") as replica:
        for name, invite in invites.items():
            end = Invitation(name.encode(), int(time.time()) - 86_400).encode()
            replica.commit(lambda author: author.grant((), end, invite.public))  # noqa: B023
    keys = {name: SigningKey.generate() for name in ("gamma", "delta")}
    for name, key in keys.items():
        with member.replica("conf", invites[name]) as replica:
            replica.commit(lambda author: author.grant((), name.encode(), key.public))  # noqa: B023
    rows = json.loads(member("invite", "conf", "--list", "--json"))
    assert {row["machine"]: row["standing"] for row in rows} == {"gamma": "used", "delta": "used", "nobody": "expired"}
    member("grant", "conf", "gamma", keys["gamma"].public.hex())
    with member.replica("conf") as replica:
        Adopter(replica).look()
    assert {row["machine"] for row in json.loads(member("invite", "conf", "--list", "--json"))} == {"delta", "nobody"}
    assert member("invite", "conf", "--cancel", "delta").splitlines()[1:] == ["fallen with it: delta at /"]
    with member.replica("conf") as replica:
        names = set(granted(replica, "/"))
    assert b"gamma" in names and b"delta" not in names
    assert "do not go together" in member.fails("invite", "conf", "--cancel", "nobody", "--list", code=2)


def test_it_exists_here(member: Cli, machine: Machine) -> None:
    token = invited(member, "conf")
    with member.replica("conf") as replica, served(replica) as address:
        assert machine.join(at(token, address))[0] == 0
        assert "there is a filesystem conf already" in machine.fails(at(token, address))


def test_names_that_are_none(member: Cli, machine: Machine) -> None:
    token = str(invited(member, "conf"))
    assert "is not a filesystem name" in machine.fails(token, "no?such", code=2)
    evil = Token("../../etc", bytes(28), bytes(32), 2**32 - 1, False, (), (NodeAddress("127.0.0.1", 1),))
    assert "is not a filesystem name" in machine.fails(str(evil), code=2)
    nowhere = Token("conf", bytes(28), bytes(32), 2**32 - 1, False, (), ())
    assert "names no member" in machine.fails(str(nowhere), code=2)


# -- a closed filesystem -----------------------------------------------------------------------------------------------


def test_members_let_in_who_has_an_invitation(secret: Cli, machine: Machine) -> None:
    token = invited(secret, "conf:/web", "--name", "gamma")
    with secret.replica("conf") as replica, closed(replica) as address:
        code, out, err = machine.join(at(token, address))
        assert (code, err) == (0, ""), err
        assert out.splitlines()[1] == "joined: gamma may write at /web and below"
        assert SigningKey.load(machine.cli.home.default_key).public in replica.members()


@pytest.mark.parametrize("option", [(), ("--read-only",)])
def test_an_inviter_that_adopts_while_the_machine_still_talks_to_it(
    secret: Cli, machine: Machine, option: tuple[str, ...]
) -> None:
    """The invite key ends, and with it its session: the machine goes on by its own key."""
    token = invited(secret, "conf", "--name", "gamma", *option)
    with secret.replica("conf") as replica:
        adopter = Adopter(replica)
        workers: list[threading.Thread] = []

        def adopt() -> None:
            workers.append(threading.Thread(target=adopter.look))
            workers[-1].start()

        with closed(replica, adopt) as address:
            code, _, err = machine.join(at(token, address))
            for worker in workers:
                worker.join()
        assert (code, err) == (0, ""), err
        assert SigningKey.from_seed(token.seed).public not in replica.members()
        assert SigningKey.load(machine.cli.home.default_key).public in replica.members()


def test_members_do_not_know_a_token_that_was_used(
    secret: Cli, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = invited(secret, "conf", "--name", "gamma")
    with temporary_directory() as directory, secret.replica("conf") as replica, closed(replica) as address:
        assert machine.join(at(token, address))[0] == 0
        Adopter(replica).look()
        second = Machine(machine.cli, directory, monkeypatch)
        said = second.fails(at(token, address))
        assert "the invitation is not known there: it was used, was cancelled, or has not arrived there yet" in said
        assert leftovers(second.cli) == []
        # The machine itself may come back.
        assert machine.join(at(token, address), "again")[0] == 0


def test_members_that_do_not_know_a_token_cost_the_patience_of_one(secret: Cli, machine: Machine) -> None:
    """One of them may need some seconds for a key that is new; not each of them."""
    token = invited(secret, "conf", "--name", "gamma")
    with secret.replica("conf") as replica, contextlib.ExitStack() as stack:
        addresses = [stack.enter_context(closed(replica)) for _ in range(5)]
        other = replace(token, seed=ALICE.seed())
        began = time.monotonic()
        assert "the invitation is not known there" in machine.fails(at(other, *addresses))
        assert time.monotonic() - began < 20, "five seconds each are 25"


def test_only_members_that_the_token_names_are_believed(secret: Cli, machine: Machine) -> None:
    token = invited(secret, "conf")
    with secret.replica("conf") as replica, closed(replica) as address:
        other = replace(token, keys=(ALICE.public,))
        said = machine.fails(at(other, address))
        assert "the invitation is not known there" in said
        assert SigningKey.load(machine.cli.home.default_key).public not in replica.members()


def test_nobody_in_between_can_say_that_a_closed_filesystem_is_open(secret: Cli, machine: Machine) -> None:
    token = invited(secret, "conf")
    with secret.replica("conf") as replica, served(replica) as address:
        said = machine.fails(at(token, address))
        assert "it speaks no TLS, although its filesystem is closed" in said
        assert SigningKey.load(machine.cli.home.default_key).public not in replica.members()
    assert leftovers(machine.cli) == []
