"""How a filesystem comes to this node: made here, fetched from another node, or imported from an archive.

The log is built in a directory beside its place, so a crash leaves the old filesystem of that name or the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import dns.exception
import dns.resolver

from basefs.daemon.config import SYNC_PORT_OFFSET, Home, NodeAddress, is_ip, parse_address
from basefs.daemon.handover import HandOver
from basefs.daemon.keyfiles import KeyFile, default_keys, ensure_default_key, keep_key
from basefs.daemon.lock import is_held
from basefs.durable import sync_directory, write_file
from basefs.errors import AlreadyRunning, BaseFSError, Exists, PeerUnreachable, UsageError, WrongFilesystem
from basefs.gossip.members import PEERS_FILE, PeerBook
from basefs.log.extensions import MAX_RECOVERY_KEYS, RecoveryKeys
from basefs.log.hashes import HASH_SIZE, ZERO_HASH
from basefs.log.keys import SigningKey, parse_public_key
from basefs.replica.bootstrap import bootstrap
from basefs.replica.replica import Replica
from basefs.sync.net.tls import Credentials
from basefs.sync.net.transport import Session, SessionContext, hang_up, sync_with
from basefs.sync.session.result import Reason, Result
from basefs.sync.wire.limits import DEFAULT_LIMITS, NEWCOMER_LIMITS, Limits

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A filesystem that was fetched, or what has come of it so far.

    `identity`: in hex, '' while it is unknown; `open`: whether anybody may read it.
    """

    identity: str
    entries: int
    blocks: int
    bytes: int = 0
    open: bool = False


def parse_identity(text: str) -> bytes:
    """An identity as people write it.  Raises `UsageError`."""
    with contextlib.suppress(ValueError):
        identity = bytes.fromhex(text)
        if len(identity) == HASH_SIZE:
            return identity
    raise UsageError(f"an identity is {2 * HASH_SIZE} hexadecimal digits, as 'basefs list' prints it")


@contextlib.contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """A fresh directory that replaces `directory`, and what is in it, unless the body raises.

    The directory above it must exist.  Raises OSError.
    """
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=directory.parent))
    try:
        yield fresh
        if directory.exists():
            shutil.rmtree(directory)
        fresh.rename(directory)
        sync_directory(directory.parent)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


@dataclass(frozen=True, slots=True)
class Created:
    """A new filesystem: its identity in hex, and the root key that was made for it, if none was given."""

    identity: str
    root_key: KeyFile | None


def create(
    home: Home,
    name: str,
    keypaths: Sequence[Path],
    addresses: Sequence[NodeAddress],
    *,
    replaces: bool,
    is_open: bool,
    passphrase: Callable[[Path], str],
    recovery: RecoveryKeys | None = None,
) -> Created:
    """Make a filesystem.

    Args:
        home: of this node.
        name: of the filesystem.
        keypaths: the root key, and those that it grants; none: a new one (`Home.root_key`), and the default key.
        addresses: of the nodes that newcomers join.
        replaces: delete a filesystem of that name.
        is_open: whether anybody may read it, and not only its members.
        passphrase: is asked for that of a key which is encrypted.
        recovery: the keys that can replace the root key, as of `recovery_keys`.

    Raises `Exists`, `AlreadyRunning`, `UsageError`, OSError.
    """
    directory = home.directory(name)
    home.subdirectory("fs")
    if (directory / "log.db").exists() and not replaces:
        raise Exists(f"there is a filesystem {name} already: -f deletes it, with all its history on this node")
    if is_held(directory):
        raise AlreadyRunning(f"{name} is running: 'basefs unmount {name}' first")
    root = None if keypaths else SigningKey.generate()
    keys = _first_keys(home, keypaths, root, passphrase)
    if recovery is not None and keys[0][1].public in recovery.publics:
        raise UsageError(
            "the root key cannot be one of its recovery keys, or a thief would have both: give another --recovery"
        )
    with new_directory(directory) as fresh:
        nodes = [str(address) for address in addresses]
        with contextlib.closing(bootstrap(fresh, keys, nodes, is_open=is_open, recovery=recovery)) as replica:
            if not is_open:
                replica.commit(lambda author: author.key_holder.renew_gossip_key(), key=keys[0][1])
                replica.sync_to_disk()
            identity = replica.identity.hex()
        kept = None if root is None else keep_key(root, home.root_key(name), overwrite=True)
    return Created(identity, kept)


def _first_keys(
    home: Home, keypaths: Sequence[Path], root: SigningKey | None, passphrase: Callable[[Path], str]
) -> list[tuple[bytes, SigningKey]]:
    """The keys of a new filesystem with their names, the root key first.  Raises `UsageError`, OSError."""
    if not keypaths:
        ensure_default_key(home)
    paths = keypaths or (home.default_key,)
    keys = [(_key_name(path, home), SigningKey.load(path, partial(passphrase, path))) for path in paths]
    if root is not None:
        keys.insert(0, (b"root", root))
    if len({key.fingerprint for _, key in keys}) < len(keys):
        raise UsageError("the same key was given twice with -k")
    return keys


def recovery_keys(publics: Sequence[str], threshold: int | None) -> RecoveryKeys | None:
    """The recovery keys of a new filesystem; `threshold`: `None` is a majority of them.  Raises `UsageError`."""
    keys = sorted({parse_public_key(public) for public in publics})
    if len(keys) < len(publics):
        raise UsageError("the same key was given twice with --recovery")
    if len(keys) > MAX_RECOVERY_KEYS:
        raise UsageError(f"a filesystem has at most {MAX_RECOVERY_KEYS} recovery keys")
    if not keys:
        if threshold is not None:
            raise UsageError("--threshold needs recovery keys: give them with --recovery")
        return None
    least = len(keys) // 2 + 1 if threshold is None else threshold
    if not 1 <= least <= len(keys):
        raise UsageError(f"--threshold is from 1 to {len(keys)}, the number of the recovery keys")
    return RecoveryKeys(least, tuple(keys))


def _key_name(path: Path, home: Home) -> bytes:
    """Keys are named after their file; the default key, which is named alike everywhere, after the host."""
    text = socket.gethostname() if path == home.default_key else path.name
    return text.encode("utf-8", "surrogateescape")[:255]


def fetch(
    home: Home,
    name: str,
    address: str,
    identity: bytes | None,
    progress: Callable[[Fetched], None],
    failed: Callable[[str], None],
    refused: str,
) -> Fetched:
    """Fetch a filesystem from the first node behind `address` that can be reached.

    Nodes of a closed filesystem let in the default key if it is a member; any node is believed, since identity and
    signatures vouch for what comes.

    `identity`: what it must be; by default what a filesystem of this name was the last time, if there was one.
    `progress` is called with what has come so far, `failed` with why a node was given up for the next one.  `refused`:
    what to say if the key is not known there.  The default key is made if there is none.  Raises `Exists`,
    `PeerUnreachable`, `WrongFilesystem`, `ProtocolError`.
    """
    known = None if identity is not None else KnownIdentities(home).get(name)
    expected = known if identity is None else identity

    ensure_default_key(home)
    access = Access([Credentials(default_keys(home)[0], None)], refused)

    def bring(replica: Replica, node: NodeAddress) -> None:
        fetch_all(replica, node, expected, progress, access)

    try:
        return arrive(home, name, find_nodes(address), expected, bring, failed, (PeerUnreachable,))
    except WrongFilesystem as error:
        if known is None:
            raise
        raise WrongFilesystem(
            f"{error}, which {name} was the last time: choose another name, or add --id if this one is meant"
        ) from None


def arrive(
    home: Home,
    name: str,
    nodes: Sequence[NodeAddress],
    identity: bytes | None,
    bring: Callable[[Replica, NodeAddress], None],
    failed: Callable[[str], None],
    passing: tuple[type[BaseFSError], ...],
    keys: Sequence[SigningKey] = (),
) -> Fetched:
    """Make the log of a filesystem from what the first of some nodes sends.

    Args:
        home, name: where it comes to be.
        nodes: tried one after another.
        identity: what it must be; `None`: whichever comes.
        bring: takes all that a node has into the log.
        failed: is called with why a node was given up for the next one.
        passing: the errors after which the next node is tried.  Those of the last one are raised.
        keys: that sign what `bring` adds.

    Raises `Exists`, and what `bring` raises.
    """
    directory = home.directory(name)
    if directory.exists():
        raise Exists(f"there is a filesystem {name} already: choose another name, or 'basefs remove {name}' first")
    home.subdirectory("fs")
    with new_directory(directory) as fresh, contextlib.closing(Replica.create(fresh, identity, keys)) as replica:
        source = _first(nodes, partial(bring, replica), failed, passing)
        totals = replica.totals()
        found = Fetched(replica.identity.hex(), totals["entries"], totals["blocks"], open=replica.is_open)
        # All of it is there as well.
        HandOver(replica.root_hash().hex(), str(source)).save(fresh)
        # Where a mount looks for the others first, whatever /.cluster says.
        book = PeerBook(fresh / PEERS_FILE)
        book.add([str(source)])
        book.save()
        KnownIdentities(home).remember(name, replica.identity)
    return found


def _first(
    nodes: Sequence[NodeAddress],
    bring: Callable[[NodeAddress], None],
    failed: Callable[[str], None],
    passing: tuple[type[BaseFSError], ...],
) -> NodeAddress:
    """The first node with which `bring` succeeds.  Raises the error of the last one."""
    for node in nodes[:-1]:
        try:
            bring(node)
            return node
        except passing as error:
            failed(f"{error}; trying the next")
    bring(nodes[-1])
    return nodes[-1]


#: Seconds for which a newcomer goes on asking, since members may not know its key yet.
_PATIENCE = 10.0


@dataclass(slots=True)
class Access:
    """How a newcomer is let in; for one arrival.

    Attributes:
        credentials: tried one after another, where the filesystem is closed.
        refused: why none of them is known there, and what to do; '' for what TLS says.
        is_invited: whether an invitation tells whether the filesystem is open, and whom to trust: then nothing of a
            closed one is said or taken in plain, and no log that somebody has sent adds to those who are trusted.
    """

    credentials: Sequence[Credentials]
    refused: str = ""
    is_invited: bool = False
    #: From then on a refusal is final, for all nodes of this arrival; by the clock of event loops.
    _until: float = field(default=math.inf, init=False)

    async def session(
        self, replica: Replica, node: NodeAddress, progress: Callable[[Session], None], limits: Limits
    ) -> Result:
        """A session with a node, under TLS unless its filesystem is open."""
        loop = asyncio.get_running_loop()
        while True:
            result = await self._try(replica, node, progress, limits)
            if result.reason is not Reason.UNKNOWN_KEY or not result.by_peer:
                return result
            # It may have been granted a moment ago.  A member lets it in a second after that, a busy one some seconds
            # after.
            self._until = min(self._until, loop.time() + _PATIENCE)
            if loop.time() >= self._until:
                return result
            await asyncio.sleep(0.5)

    async def _try(
        self, replica: Replica, node: NodeAddress, progress: Callable[[Session], None], limits: Limits
    ) -> Result:
        port = node.port + SYNC_PORT_OFFSET
        members = replica.members()
        result: Result | None = None
        # Once the log says that the filesystem is open, a TLS connection would be in vain.
        for each in () if replica.is_open else self.credentials:
            if members and not self.is_invited:
                # What has come from a closed one is for its members, whoever answers there.
                each.update(members)
            shared = SessionContext(limits=limits, credentials=each)
            result = await sync_with(replica, node.host, port, progress=progress, shared=shared)
            if result.reason is Reason.NO_TLS:
                break
            if result.reason is not Reason.UNKNOWN_KEY:
                return result
        if result is None or not (members or self.is_invited or result.reason is Reason.UNKNOWN_KEY):
            shared = SessionContext(limits=limits)
            return await sync_with(replica, node.host, port, progress=progress, shared=shared)
        if result.reason is Reason.UNKNOWN_KEY:
            return replace(result, detail=self.refused or result.detail)
        detail = "it speaks no TLS, although its filesystem is closed: another machine may answer in its place"
        return replace(result, detail=detail)


def fetch_all(
    replica: Replica,
    node: NodeAddress,
    identity: bytes | None,
    progress: Callable[[Fetched], None],
    access: Access,
) -> bool:
    """Take all that a node has into a log, and give it what it lacks; returns whether both are equal then.

    Raises `PeerUnreachable`, also where nothing came, `WrongFilesystem` where the node has not this identity,
    `ProtocolError`.
    """

    def show(session: Session) -> None:
        counters = session.counters
        progress(Fetched("", counters.entries_received, counters.blocks_received, counters.bytes_received))

    is_equal = asyncio.run(_sync_until_equal(replica, node, identity, show, access))
    # A node may have the identity and nothing else: it claims so, or is about to fetch the filesystem itself.
    if not replica.totals()["entries"]:
        raise PeerUnreachable(f"{node} sent nothing: is a filesystem running there?")
    return is_equal


async def _identity_at(node: NodeAddress, access: Access) -> bytes:
    """The identity of the filesystem of a node: it says that to a newcomer only."""
    with (
        tempfile.TemporaryDirectory() as directory,
        contextlib.closing(Replica.create(Path(directory), None)) as nothing,
    ):
        result = await access.session(nothing, node, hang_up, DEFAULT_LIMITS)
    return result.peer_identity


async def _sync_until_equal(
    replica: Replica, node: NodeAddress, identity: bytes | None, show: Callable[[Session], None], access: Access
) -> bool:
    """Sync, again if the peer's log changed meanwhile, as long as that brings anything; whether both are equal."""
    while True:
        try:
            result = await access.session(replica, node, show, NEWCOMER_LIMITS)
            heard = result.peer_identity
            if identity is not None and result.reason is Reason.WRONG_FILESYSTEM:
                heard = await _identity_at(node, access)
            if identity is not None and heard not in (ZERO_HASH, identity):
                raise WrongFilesystem(f"another filesystem answers there: {heard.hex()}, not {identity.hex()}")
            result.raise_for_reason()
        except BaseFSError as error:
            raise type(error)(f"{node}: {error}") from None
        replica.review_needs(at_once=True)
        if (result.equal and not replica.missing_blocks(1)) or not result.counters.accepted:
            return result.equal


#: Lines of a name and an identity in hex.
_FILE = "identities"


class KnownIdentities:
    """What a name meant the last time, so that another filesystem is noticed (trust on first use)."""

    def __init__(self, home: Home) -> None:
        self._path = home.path / _FILE

    def get(self, name: str) -> bytes | None:
        """The identity of the filesystem that was last fetched under a name; `None` if none was."""
        return self._read().get(name)

    def remember(self, name: str, identity: bytes) -> None:
        """Note what a name means from now on.  Raises OSError."""
        known = self._read()
        if known.get(name) == identity:
            return
        known[name] = identity
        write_file(self._path, "".join(f"{name} {known[name].hex()}\n" for name in sorted(known)).encode())

    def _read(self) -> dict[str, bytes]:
        """What is no such line is left out: without the file a name is only as unknown as it was at first."""
        known = {}
        with contextlib.suppress(OSError):
            for line in self._path.read_text(errors="replace").splitlines():
                name, _, digits = line.partition(" ")
                with contextlib.suppress(ValueError):
                    identity = bytes.fromhex(digits)
                    if len(identity) == HASH_SIZE:
                        known[name] = identity
        return known


_PREFIX = b"basefs="


def find_nodes(text: str, resolver: dns.resolver.Resolver | None = None) -> list[NodeAddress]:
    """The nodes that `HOST[:PORT]` stands for: those that its TXT records name, or else the host itself.

    Args:
        text: as a user types it.  The port is that of the host; a record may name another one.
        resolver: whom to ask; by default the system's name servers.

    Raises `UsageError` for what is no address.  A name server that does not answer leaves the host itself, which may be
    known otherwise (`/etc/hosts`).
    """
    address = parse_address(text)
    if is_ip(address.host):
        return [address]
    host, port = address
    found = []
    for record in _records(host, resolver):
        if record.startswith(_PREFIX):
            try:
                found.append(parse_address(record[len(_PREFIX) :].decode("utf-8", "replace"), port))
            except UsageError as error:
                log.warning("ignoring a TXT record of %s: %s", host, error)
    return list(dict.fromkeys(found)) or [address]


def _records(host: str, resolver: dns.resolver.Resolver | None) -> list[bytes]:
    try:
        asked = resolver or dns.resolver.Resolver()
        answer = asked.resolve(host, "TXT", lifetime=5.0)
    except dns.exception.DNSException as error:
        log.debug("no TXT records of %s: %s", host, error)
        return []
    # A record of over 255 bytes comes in pieces.
    return sorted(b"".join(data.strings) for data in answer)
