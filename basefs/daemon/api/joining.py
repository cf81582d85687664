"""How a machine comes to a filesystem by an invitation: made on a member, redeemed on the new machine."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from basefs.daemon.api.client import FilesystemClient
from basefs.daemon.api.creation import Access, Fetched, arrive, fetch_all
from basefs.daemon.api.inspection import known_peers
from basefs.daemon.api.messages import (
    ContentPiece,
    GetSummary,
    GetVersion,
    GrantedKey,
    InviteKey,
    ListKeys,
    ListMembers,
    ReadContents,
)
from basefs.daemon.config import Home, NodeAddress, is_ip, parse_address
from basefs.daemon.keyfiles import default_keys, ensure_default_key
from basefs.daemon.token import MAX_ADDRESSES, MAX_KEYS, Token
from basefs.errors import (
    BaseFSError,
    NetworkError,
    NotFound,
    NotPermitted,
    NotRunning,
    PeerUnreachable,
    ProtocolError,
    Unsupported,
    UsageError,
)
from basefs.log.keys import SigningKey, fingerprint_of
from basefs.path import Path, display
from basefs.replica.bootstrap import CLUSTER_FILE
from basefs.replica.replica import Replica
from basefs.sync.net.tls import Credentials
from basefs.view.invitations import MAX_MACHINE, READERS, Invitation, free_name, is_invitation
from basefs.view.past import GrantRecord

# -- on a member -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Invited:
    """An invitation that was made.

    Attributes:
        invitation: the token, which the new machine needs; it is printed, and kept nowhere.
        fingerprint: of the invite key, in hex.
        path: below which the machine may write.
        machine: its name, '' where it chooses one.
        until: when it expires, UNIX seconds.
    """

    invitation: str
    fingerprint: str
    path: str
    machine: str
    until: int


def invite(home: Home, name: str, client: FilesystemClient, path: str | None, machine: str, seconds: float) -> Invited:
    """Invite a machine to write at a path of a filesystem, or (`None`) to read it, for so many seconds from now.

    Raises `UsageError` for a bad name or where no address of a member is known, and what `InviteKey` raises.
    """
    if len(_bytes(machine)) > MAX_MACHINE or not machine.isprintable():
        raise UsageError(f"{machine!r} is no name for a machine: use up to {MAX_MACHINE} printable bytes")
    granted = client.ask(ListKeys())
    for one in granted:
        if machine and one.name == machine:
            raise UsageError(f"{machine} is the name of the key {one.fingerprint[:8]} already: choose another --name")
    addresses = list(dict.fromkeys(_addresses(home, name, client)))[:MAX_ADDRESSES]
    if not addresses:
        raise UsageError(
            f"no address of a member of {name} is known, which the new machine needs: mount {name} with its network "
            "first"
        )
    key = SigningKey.generate()
    invitation = Invitation(_bytes(machine), int(time.time() + seconds))
    at = client.ask(InviteKey(path, _text(invitation.encode()), key.public.hex()))
    summary = client.ask(GetSummary())
    token = Token(
        name=name,
        identity=bytes.fromhex(summary.identity),
        seed=key.seed(),
        until=invitation.until,
        is_open=summary.open,
        keys=tuple(_member_keys(granted)),
        addresses=tuple(addresses),
    )
    return Invited(str(token), key.fingerprint.hex(), at, machine, invitation.until)


@dataclass(frozen=True, slots=True)
class OpenInvitation:
    """An invitation in force.

    Attributes:
        path, machine, fingerprint, until: see `Invited`.
        standing: open; used, by keys that are not adopted; expired.
        used_by: names of these keys, more than one if the token was used twice.
        used_by_keys: their fingerprints.
        invited_by: the name, or else the fingerprint, of the key that signed it.
    """

    path: str
    machine: str
    fingerprint: str
    until: int
    standing: str
    used_by: list[str]
    used_by_keys: list[str]
    invited_by: str


def open_invitations(client: FilesystemClient) -> list[OpenInvitation]:
    """The invitations of a filesystem that are in force."""
    granted = client.ask(ListKeys())
    found = []
    for one in granted:
        invitation = Invitation.decode(_bytes(one.name))
        if invitation is not None:
            uses = [other for other in granted if other.granted_by == one.fingerprint]
            used_by = [other.name for other in uses]
            standing = "used" if used_by else "expired" if invitation.until < time.time() else "open"
            by, machine = one.granted_by_name or one.granted_by, _text(invitation.machine)
            keys = [other.fingerprint for other in uses]
            until = invitation.until
            found.append(OpenInvitation(one.path, machine, one.fingerprint, until, standing, used_by, keys, by))
    return found


def is_for_invitations(key_name: str) -> bool:
    """Whether the name of a key, as messages have it, says that it is an invitation."""
    return is_invitation(_bytes(key_name))


def _member_keys(granted: list[GrantedKey]) -> list[bytes]:
    """Keys of members: this node's first, then those of the highest authority; no invite keys.

    The root key comes last, since it may be in a drawer.
    """
    keys = [
        one for one in granted if one.depth is not None and one.standing == "valid" and not is_for_invitations(one.name)
    ]
    keys.sort(key=lambda one: (not one.own, one.granted_by == one.fingerprint, one.depth))
    return list(dict.fromkeys(bytes.fromhex(one.public) for one in keys))[:MAX_KEYS]


def _addresses(home: Home, name: str, client: FilesystemClient) -> Iterator[NodeAddress]:
    """Where members are: this node, those that answer, those that `/.cluster` names, those that were there before."""
    texts: list[str] = []
    with contextlib.suppress(NotRunning, Unsupported):
        members = [one for one in client.ask_daemon(ListMembers()) if one.same_filesystem]
        members.sort(key=lambda one: (not one.own, one.status != "alive"))
        texts += [one.address for one in members if one.own or one.status in ("alive", "silent", "failed")]
    with contextlib.suppress(BaseFSError):
        content = client.ask(GetVersion("/" + _text(CLUSTER_FILE))).content
        if content is not None:
            (piece,) = client.ask(ReadContents([ContentPiece(content, 0, 64 * 1024)]))
            texts += (piece or b"").decode("utf-8", "replace").split()
    texts += known_peers(home, name)
    for text in texts:
        with contextlib.suppress(UsageError):
            address = parse_address(text)
            if is_ip(address.host) and "%" not in address.host:
                yield address


# -- on the new machine ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joined:
    """A filesystem that this machine has joined.

    Attributes:
        fetched: what has come.
        path: below which the machine may write; `None`: it may only read.
        key_name: what its key is called.
    """

    fetched: Fetched
    path: str | None
    key_name: str


def join(
    home: Home, name: str, token: Token, progress: Callable[[Fetched], None], failed: Callable[[str], None]
) -> Joined:
    """Join the filesystem of a token, and call it `name` here.

    The machine's own key is made if there is none; only its public half leaves the machine.  `progress` and `failed`
    are called as by `fetch`.  Raises `UsageError` for a token that has expired, `NotPermitted` for one that was used,
    and what `arrive` raises.
    """
    if token.until < time.time():
        raise UsageError(
            f"the invitation expired at {_moment(token.until)}, by the clock of this machine ({_moment(time.time())}): "
            "ask for another one"
        )
    if not token.addresses:
        raise UsageError("the invitation names no member to join: ask for another one")
    home.directory(name)
    ensure_default_key(home)
    (own,) = default_keys(home)
    newcomer = _Newcomer(token, own)
    # Once it is adopted the machine is known by its own key, and by the invite key no more.
    access = Access(
        [] if token.is_open else [Credentials(newcomer.invite, token.keys), Credentials(own, token.keys)],
        "the invitation is not known there: it was used, was cancelled, or has not arrived there yet",
        is_invited=True,
    )

    # Without what the inviter adds as soon as it hears of the machine.
    fetched_by_now: dict[str, int] = {}

    def bring(replica: Replica, node: NodeAddress) -> None:
        fetch_all(replica, node, token.identity, progress, access)
        newcomer.redeem(replica, node)
        fetched_by_now.update(replica.totals())
        # Sends the grant, as both logs are made equal.
        if not fetch_all(replica, node, token.identity, progress, access):
            raise PeerUnreachable(f"{node}: this member has not taken the key of this machine")

    # A member may be away, be replaced by another machine, or not know of the invitation yet.
    passing = (NetworkError, ProtocolError, NotFound)
    fetched = arrive(home, name, token.addresses, token.identity, bring, failed, passing, [newcomer.invite])
    fetched = replace(fetched, entries=fetched_by_now["entries"], blocks=fetched_by_now["blocks"])
    path = None if newcomer.path == READERS else display(newcomer.path)
    return Joined(fetched, path, newcomer.name.decode("utf-8", "replace"))


class _Newcomer:
    """A machine with a token.

    Attributes:
        invite: the key of the token.
        path: what it is invited to, once that is known.
        name: of its own key, likewise.
    """

    def __init__(self, token: Token, own: SigningKey) -> None:
        self.invite = SigningKey.from_seed(token.seed)
        self.path: Path = ()
        self.name = b""
        self._own = own
        self._inviter = {fingerprint_of(public) for public in token.keys[:1]}

    def redeem(self, replica: Replica, node: NodeAddress) -> None:
        """Grant the machine's own key where the token allows it, in a log that a node has sent.

        Raises `NotFound` if the node does not know the invitation, `NotPermitted` if that does not count any more.
        """
        grants = replica.plan(lambda author: author.past.grants())
        invited = self._invited(grants)
        if invited is None:
            raise NotFound(f"{node}: this member has not received the invitation yet")
        self.path = invited.path
        valid = [one for one in grants if one.standing == "valid"]
        mine = [one for one in valid if one.fingerprint == self._own.fingerprint and one.path == self.path]
        if mine:
            # It was here before, and has lost the connection then.
            self.name = mine[0].entry.name
            return
        users = [one for one in grants if one.entry.fingerprint == self.invite.fingerprint]
        if users:
            who = f"{users[0].entry.name.decode('utf-8', 'replace')} ({users[0].fingerprint.hex()[:12]})"
            raise NotPermitted(
                f"the invitation was used already, by {who}: if that is not this machine, somebody else has seen it; "
                "ask for another one"
            )
        invitation = Invitation.decode(invited.entry.name)
        if invitation is None or invited.standing != "valid":
            raise NotPermitted("the invitation was cancelled, or has expired: ask for another one")
        self.name = free_name(invitation.machine or _bytes(socket.gethostname()), self._own.fingerprint, valid)
        key, path, key_name = self._own.public, self.path, self.name
        if path == READERS:
            replica.commit(lambda author: author.admit(path, key_name, key))
        else:
            replica.commit(lambda author: author.grant(path, key_name, key))

    def _invited(self, grants: Sequence[GrantRecord]) -> GrantRecord | None:
        """The invitation itself; `None` if a log does not have it."""
        invited = [
            one for one in grants if one.fingerprint == self.invite.fingerprint and is_invitation(one.entry.name)
        ]
        # The inviter's own, as any key holder may grant the invite key elsewhere under such a name.
        invited.sort(key=lambda one: (one.entry.fingerprint not in self._inviter, one.standing != "valid"))
        return invited[0] if invited else None


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
