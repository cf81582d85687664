"""How a filesystem comes to this node: made here, fetched from another node, or imported from an archive.

The log is built in a directory beside its place, so a crash leaves the old filesystem of that name or the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from basefs.daemon.config import SYNC_PORT_OFFSET, Home, NodeAddress
from basefs.daemon.discovery import find_nodes
from basefs.daemon.handover import HandOver
from basefs.daemon.keyfiles import default_keys, ensure_default_key
from basefs.daemon.lock import is_held
from basefs.durable import sync_directory
from basefs.errors import AlreadyRunning, BaseFSError, Exists, PeerUnreachable, UsageError, WrongFilesystem
from basefs.gossip.members import PEERS_FILE, PeerBook
from basefs.log.hashes import HASH_SIZE, ZERO_HASH
from basefs.log.keys import SigningKey
from basefs.replica.bootstrap import bootstrap
from basefs.replica.replica import Replica
from basefs.sync.net.tls import Credentials
from basefs.sync.net.transport import Session, SessionContext, sync_with
from basefs.sync.session.result import Reason, Result
from basefs.sync.wire.limits import DEFAULT_LIMITS, NEWCOMER_LIMITS, Limits


@dataclass(frozen=True, slots=True)
class Fetched:
    """A filesystem that was fetched, or what has come of it so far; `identity` in hex, '' while it is unknown."""

    identity: str
    entries: int
    blocks: int
    bytes: int = 0


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


def create(
    home: Home,
    name: str,
    keypaths: Sequence[Path],
    addresses: Sequence[NodeAddress],
    *,
    replaces: bool,
    is_open: bool,
) -> str:
    """Make a filesystem; returns its identity in hex.

    Args:
        home: of this node.
        name: of the filesystem.
        keypaths: its root keys, the first one signs; none: the default key, which is made if there is none.
        addresses: of the nodes that newcomers join.
        replaces: delete a filesystem of that name.
        is_open: whether anybody may read it, and not only its members.

    Raises `Exists`, `AlreadyRunning`, `UsageError`, OSError.
    """
    directory = home.directory(name)
    home.subdirectory("fs")
    if (directory / "log.db").exists() and not replaces:
        raise Exists(f"there is a filesystem {name} already: -f deletes it, with all its history on this node")
    if is_held(directory):
        raise AlreadyRunning(f"{name} is running: 'basefs unmount {name}' first")
    if not keypaths:
        ensure_default_key(home)
    keys = [(_key_name(path, home), SigningKey.load(path)) for path in keypaths or (home.default_key,)]
    if len({key.fingerprint for _, key in keys}) < len(keys):
        raise UsageError("the same key was given twice with -k")
    with new_directory(directory) as fresh:
        replica = bootstrap(fresh, keys, [str(address) for address in addresses], is_open=is_open)
        identity = replica.identity.hex()
        replica.close()
    return identity


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
) -> Fetched:
    """Fetch a filesystem from the first node behind `address` that can be reached.

    Nodes of a closed filesystem let in the default key if it is a member; any node is believed, since identity and
    signatures vouch for what comes.

    `identity`: what it must be.  `progress` is called with what has come so far, `failed` with why a node was
    given up for the next one.  The default key is made if there is none.  Raises `Exists`, `PeerUnreachable`,
    `WrongFilesystem`, `ProtocolError`.
    """
    directory = home.directory(name)
    if directory.exists():
        raise Exists(f"there is a filesystem {name} already: choose another name, or 'basefs remove {name}' first")
    nodes = find_nodes(address)
    home.subdirectory("fs")
    ensure_default_key(home)
    credentials = Credentials(default_keys(home)[0], None)
    with new_directory(directory) as fresh:
        replica = Replica.create(fresh, identity)
        source = _fetch_from_any(_Newcomer(replica, identity, credentials), nodes, progress, failed)
        totals, is_empty = replica.totals(), replica.identity == ZERO_HASH
        found = Fetched(replica.identity.hex(), totals["entries"], totals["blocks"])
        # All of it has come from there.
        held = HandOver(replica.root_hash().hex(), str(source))
        replica.close()
        if is_empty:
            raise PeerUnreachable(f"{', '.join(map(str, nodes))} sent nothing: is a filesystem running there?")
        # Where a mount looks for the others first, whatever /.cluster says.
        book = PeerBook(fresh / PEERS_FILE)
        book.add([str(source)])
        book.save()
        held.save(fresh)
    return found


@dataclass(frozen=True, slots=True)
class _Newcomer:
    """Who fetches: an empty log, what its identity must be, and the key of this node."""

    replica: Replica
    identity: bytes | None
    credentials: Credentials

    async def sync(
        self, replica: Replica, node: NodeAddress, progress: Callable[[Session], None], limits: Limits
    ) -> Result:
        """A session with a node, under TLS unless its filesystem is open."""
        for credentials in (self.credentials, None):
            shared = SessionContext(limits=limits, credentials=credentials)
            port = node.port + SYNC_PORT_OFFSET
            result = await sync_with(replica, node.host, port, progress=progress, shared=shared)
            if result.reason is not Reason.NO_TLS:
                break
        return result


def _fetch_from_any(
    newcomer: _Newcomer,
    nodes: Sequence[NodeAddress],
    progress: Callable[[Fetched], None],
    failed: Callable[[str], None],
) -> NodeAddress:
    """Fetch from the first node that can be reached; returns which.  Raises the error of the last one."""

    def show(session: Session) -> None:
        counters = session.counters
        progress(Fetched("", counters.entries_received, counters.blocks_received, counters.bytes_received))

    for node in nodes[:-1]:
        try:
            asyncio.run(_sync_until_equal(newcomer, node, show))
            return node
        except PeerUnreachable as error:
            failed(f"{error}; trying the next")
    asyncio.run(_sync_until_equal(newcomer, nodes[-1], show))
    return nodes[-1]


async def _identity_at(newcomer: _Newcomer, node: NodeAddress) -> bytes:
    """The identity of the filesystem of a node: it says that to a newcomer only."""

    def hang_up(session: Session) -> None:
        if session.greeted:
            session.end(Reason.ENOUGH)

    with (
        tempfile.TemporaryDirectory() as directory,
        contextlib.closing(Replica.create(Path(directory), None)) as nothing,
    ):
        result = await newcomer.sync(nothing, node, hang_up, DEFAULT_LIMITS)
    return result.peer_identity


async def _sync_until_equal(newcomer: _Newcomer, node: NodeAddress, show: Callable[[Session], None]) -> None:
    """Sync, again if the peer's log changed meanwhile, as long as that brings anything."""
    replica, identity = newcomer.replica, newcomer.identity
    while True:
        try:
            result = await newcomer.sync(replica, node, show, NEWCOMER_LIMITS)
            heard = result.peer_identity
            if identity is not None and result.reason is Reason.WRONG_FILESYSTEM:
                heard = await _identity_at(newcomer, node)
            if identity is not None and heard not in (ZERO_HASH, identity):
                raise WrongFilesystem(f"another filesystem answers there: {heard.hex()}, not {identity.hex()}")
            result.raise_for_reason()
        except BaseFSError as error:
            raise type(error)(f"{node}: {error}") from None
        replica.review_needs(at_once=True)
        if (result.equal and not replica.missing_blocks(1)) or not result.counters.accepted:
            return
