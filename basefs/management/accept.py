"""`basefs accept`: let a machine write that asks to."""

from __future__ import annotations

import sys

import click

from basefs.daemon.api.messages import LEAST_DIGITS, GetSummary, GrantKey, ListPending, PendingKey
from basefs.daemon.config import Home
from basefs.errors import NotFound, UsageError, suggestion
from basefs.management.grant import carry_out
from basefs.management.keys import NO_MEMBER_ASKS, confirm_key
from basefs.management.output import examples, json_option, printable
from basefs.management.session import ask, ask_daemon
from basefs.management.signing import key_option, other_key
from basefs.management.target import parse_changed


@click.command(epilog=examples("basefs accept etc gamma-0f3a52", "basefs accept etc:/web 962dad4e --name web3"))
@click.argument("target", metavar="NAME[:/PATH]")
@click.argument("who", metavar="MACHINE|FINGERPRINT|PUBKEY")
@click.option("--name", "keyname", metavar="KEYNAME", help="Name of the key (default: the name of the machine).")
@click.option("-y", "--yes", is_flag=True, help="Do not ask; takes a whole fingerprint or public key.")
@key_option
@json_option
def accept(
    target: str,
    who: str,
    keyname: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Let a machine that asks to write do so at a path and everywhere below it, as 'basefs grant' does.

    'basefs keys NAME --pending' lists the machines that ask. The name of a machine is its own claim, so the command
    prints the key and asks: compare it with what 'basefs keys' prints on that machine. That very key is granted,
    whatever the machine claims meanwhile. Without a terminal the command needs -y and the whole fingerprint or public
    key, since anyone can make a key whose fingerprint begins like another one.
    """
    home = Home.from_environment()
    parsed = parse_changed(home, target)
    found = _find(home, parsed.name, who)
    if keyname is None:
        keyname = _claimed_name(found)
    if not yes and not sys.stdin.isatty():
        raise UsageError("nothing was granted: without a terminal, give -y and the whole fingerprint or public key")
    if yes and who.lower() not in (found[0].fingerprint, found[0].public):
        raise UsageError("nothing was granted: -y takes the whole fingerprint or public key, no name and no part of it")
    if not yes:
        question = f"Let this key, as {printable(keyname)}, write at {printable(parsed.path)} and below?"
        _confirm(found[0], question)
    request = GrantKey(parsed.path, keyname, found[0].public, signer=other_key())
    carry_out(home, parsed.name, request, as_json=as_json)


def _confirm(one: PendingKey, question: str) -> None:
    """Ask whether a key is meant; a 'no' ends the command."""
    claim = f"{one.name} at {one.address} {'asks' if one.proved else 'claims'} to write with the key"
    confirm_key(
        claim, [f"public key   {one.public}", f"fingerprint  {one.fingerprint}"], question, "nothing was granted"
    )


def _claimed_name(found: list[PendingKey]) -> str:
    """What a machine calls itself.  Raises `UsageError` where no key should be called so."""
    names = {one.name for one in found}
    if len(names) > 1:
        raise UsageError(f"{len(names)} machines ask with that key: name it with --name")
    (name,) = names
    if not name.isprintable():
        raise UsageError("that machine has a name that cannot be printed: name its key with --name")
    return name


def _find(home: Home, name: str, who: str) -> list[PendingKey]:
    """The machines that ask with the key that is meant.  Raises `NotFound`, and `UsageError` where it may be two."""
    pending, digits = ask_daemon(home, name, ListPending()), who.lower()
    # A machine may call itself like the key of another one.
    found = [one for one in pending if digits in (one.fingerprint, one.public)]
    if not found:
        begins = digits if len(digits) >= LEAST_DIGITS else "-"
        found = [one for one in pending if who == one.name or one.fingerprint.startswith(begins)]
    if not found:
        near = suggestion(who, (one.name for one in pending))
        others = "" if ask(home, name, GetSummary()).open else "; " + NO_MEMBER_ASKS.format(name=name)
        raise NotFound(
            f"no machine called '{who}' asks to write{near}: 'basefs keys {name} --pending' lists those that do{others}"
        )
    if len({one.public for one in found}) > 1:
        raise UsageError(f"{who} matches more than one key: give the whole fingerprint")
    return found
