"""What commands ask of a filesystem, and what it answers: one class each, and their form as JSON.

`Request` classes name their command on the control socket and the type of the answer.  Paths are texts such as `/a/b`,
UTF-8 with surrogate escapes; hashes, fingerprints and public keys are hex; times are UNIX seconds and spans seconds;
bytes travel in base64.  A class with an `inline` field has the fields of that in the same JSON object; an inline `None`
leaves them out.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import threading
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from basefs.errors import DaemonError, UsageError
from basefs.log.interface import AddResult

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:
    # Python 3.10 has none.
    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        """Tell type checkers what a decorator does."""
        return lambda decorator: decorator


Answer = TypeVar("Answer")
Message = TypeVar("Message")
_Answer = TypeVar("_Answer", covariant=True)
Json = Any


class Request(Generic[_Answer]):
    """A question; subclasses are dataclasses whose fields are its arguments."""

    #: Its name on the control socket.
    command: ClassVar[str]


#: Digits of a hash or a fingerprint that a user gives, at least.
LEAST_DIGITS = 8
#: Metadata of a field whose own fields are in the same JSON object; left out where it is `None`.
INLINE = {"inline": True}

#: Classes of messages of which there was no instance yet, and what is held while one of them is completed.
_incomplete: set[Any] = set()
_completing = threading.Lock()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def message(kind: type[Message]) -> type[Message]:
    """A frozen dataclass whose methods are generated with its first instance.

    Generating them takes 0.8 ms: for all classes of this module that is a third of the time of a command, which uses
    two or three of them.
    """

    def make(cls: type[Message], *_: Any, **__: Any) -> Message:
        _complete(cls)
        return object.__new__(cls)

    kind.__new__ = make  # type: ignore[method-assign, assignment]
    _incomplete.add(kind)
    return kind


def _complete(kind: Any) -> None:
    """Generate the methods of a class of messages, unless that was done."""
    if kind in _incomplete:
        with _completing:
            if kind in _incomplete:
                dataclass(frozen=True)(kind)
                _incomplete.discard(kind)


# -- paths and history -------------------------------------------------------------------------------------------------


@message
class LivePath:
    """A path of the live tree.  `mode`: octal digits; `writable`: whether a key of this node may write there."""

    path: str
    kind: str
    mode: str
    size: int
    mtime: float
    entry: str
    writable: bool


@message
class ListLivePaths(Request[list[LivePath]]):
    """The live paths at and below a path."""

    command = "show"
    path: str


@message
class NameEntry:
    """A name in a directory."""

    name: str
    is_directory: bool


@message
class ListNames(Request[list[NameEntry]]):
    """The names in a directory."""

    command = "names"
    path: str


@message
class RevisionRow:
    """A revision of a path.

    Attributes:
        time, arrived: when it was signed, by the signer's clock, and when it came to this node.
        action: of the entry; `attributes` for a change of mode, owner or time, `accept` for a revert that ends a branch
            that had lost.
        source: the path of the entry that a link names.
        about, about_fingerprint: of the key that a grant, revoke or admit is about; the name is its signer's word.
        key, fingerprint: of the key that signed it; the name if it is known.
        kind, size: what the path was after it: file, directory, symlink or absent; `None` if that is unknown, and for
            grants and revokes.
        standing: what it is worth.
    """

    path: str
    entry: str
    time: float
    arrived: float
    action: str
    source: str | None
    about: str | None
    about_fingerprint: str | None
    key: str | None
    fingerprint: str
    kind: str | None
    size: int | None
    standing: str


@message
class ListRevisions(Request[list[RevisionRow]]):
    """The revisions of a path, and those of the names that its file had before, in the order of signing, last first.

    `below`: the revisions of all paths below it as well.  `arrival`: in the order of arrival.
    """

    command = "log"
    path: str
    below: bool = False
    arrival: bool = False


@message
class TreeRow:
    """A revision in the tree of those that build on each other, `level` steps from the first; `parent`: its entry."""

    revision: RevisionRow = field(metadata=INLINE)
    level: int
    parent: str


@message
class ListTree(Request[list[TreeRow]]):
    """The entries of all paths at and below one, each path's in the order in which they build on each other."""

    command = "tree"
    path: str


@message
class Moment:
    """A point in the history of a path: a time of arrival on this node, or an entry.  One of the two is given.

    `entry`: the first digits of a hash.  A revision of the path itself means the path after it; any other entry, the
    moment when it had just arrived on this node.
    """

    time: float | None = None
    entry: str | None = None


@message
class Version:
    """What was at a path at a moment.

    Attributes:
        kind: file, directory, symlink, fifo, character device or block device.
        mode, owner: octal digits, and names of user and group ("root:adm"), the number of one without a name; `None` if
            unknown, the owner also where it is the mounting user.
        size: bytes of a file, 0 for anything else.
        mtime: UNIX seconds.
        target: of a symbolic link.
        device: major and minor number of a device ("8:1").
        xattrs: extended attributes ("user.comment=greeting"); bytes that are no text show as escapes.
        content: the entry by which the content of a file is read.
        entry: the entry that the path ended with.
    """

    kind: str
    mode: str | None
    owner: str | None
    size: int
    mtime: float
    target: str | None
    device: str | None
    xattrs: list[str]
    content: str | None
    entry: str


@message
class GetVersion(Request[Version]):
    """What is, or was, at a path."""

    command = "version"
    path: str
    at: Moment | None = None


@message
class PathVersions:
    """Two versions of a path; `None` where nothing was there."""

    path: str
    before: Version | None
    after: Version | None


@message
class ListDifferences(Request[list[PathVersions]]):
    """The paths at and below one that differ between two moments.

    `old`: `None` is the moment before the last change there; `new`: `None` is now.
    """

    command = "diff"
    path: str
    old: Moment | None = None
    new: Moment | None = None


@message
class RevisionPair:
    """Two revisions of one path by their hashes; `old`: `None` is the revision that the new one builds on."""

    new: str
    old: str | None = None


@message
class CompareRevisions(Request[list[PathVersions]]):
    """Pairs of revisions, each of a path of its own."""

    command = "compare"
    pairs: Sequence[RevisionPair]


@message
class ContentPiece:
    """Up to `size` bytes from `offset` of the content of an entry."""

    entry: str
    offset: int
    size: int


@message
class ReadContents(Request[list[bytes | None]]):
    """Pieces of contents; `None` where blocks of a content have not arrived yet."""

    command = "contents"
    pieces: Sequence[ContentPiece]


@message
class RevertOutcome:
    """What a revert does.

    Attributes:
        entries: how many it makes.
        changed: the paths that change.
        kept: with `keep_new`, the paths that stay because a directory and something else have changed places there.
        reverted: whether it was done.
    """

    entries: int
    changed: list[PathVersions]
    kept: list[str]
    reverted: bool


@message
class Revert(Request[RevertOutcome]):
    """Make a path, live or deleted, again what it was.  Either `entry` or `at` is given.

    Attributes:
        entry: a revision of the path.
        at: the path and all below it come back as they were on this node then.
        keep_new: delete nothing.
        dry_run: change nothing.
        most_deleted: change nothing if more paths would be deleted than this.
    """

    command = "revert"
    path: str
    entry: str | None = None
    at: Moment | None = None
    keep_new: bool = False
    dry_run: bool = False
    most_deleted: int | None = None


@message
class LostRevision:
    """A revision that lost a conflict, the one that is shown instead, and the rule that decided."""

    path: str
    lost: RevisionRow
    won: RevisionRow
    rule: str


@message
class ListConflicts(Request[list[LostRevision]]):
    """The revisions that lost, at and below a path, deleted paths included."""

    command = "conflicts"
    path: str


@message
class ListIgnored(Request[list[RevisionRow]]):
    """The revisions at and below a path that count for nothing, because their keys are not valid there."""

    command = "ignored"
    path: str


@message
class SettledConflict:
    """A conflict, and whether it is settled now."""

    conflict: LostRevision = field(metadata=INLINE)
    settled: bool


@message
class AcceptConflicts(Request[list[SettledConflict]]):
    """Accept what has won at and below a path."""

    command = "accept"
    path: str


# -- keys --------------------------------------------------------------------------------------------------------------


@message
class GrantedKey:
    """A grant; `standing`: as `basefs keys` explains it; `grant`: its entry; `own`: of a key of this node."""

    path: str
    name: str
    fingerprint: str
    depth: int | None
    standing: str
    granted_by: str
    granted_by_name: str | None
    grant: str
    public: str
    own: bool


@message
class ListKeys(Request[list[GrantedKey]]):
    """The grants in force, all or those that count at one path; with `every` also those that count no more.

    Those on what was removed are among them, as long as their keys may read.
    """

    command = "keys"
    path: str | None = None
    every: bool = False


@message
class ChangedGrant:
    """A grant that falls or that is gained."""

    path: str
    name: str
    fingerprint: str


@message
class GrantOutcome:
    """What a grant or revoke does: number of entries, acknowledged paths, paths that change, grants that change."""

    entries: int
    acks: list[str]
    changed: list[PathVersions]
    fallen: list[ChangedGrant]
    gained: list[ChangedGrant]


@message
class OtherKey:
    """A key that signs one grant or revoke instead of the node's, and that the daemon then forgets.

    Attributes:
        seed: its RFC 8032 secret; `None` where an SSH agent holds it.
        agent: path of the agent's socket.
        public: the public key that the agent knows, in hex.
    """

    seed: bytes | None = field(default=None, repr=False)
    agent: str | None = None
    public: str | None = None


@message
class GrantKey(Request[GrantOutcome]):
    """Let a public key write at a path and below it.

    Without `force` a name that another key has is refused, and so is a second name of a key.
    """

    command = "grant"
    path: str
    name: str
    public: str
    dry_run: bool = False
    force: bool = False
    signer: OtherKey | None = None


@message
class InviteKey(Request[str]):
    """Grant an invite key on a path, which is the answer; `None`: where it lets a machine read and not write."""

    command = "invite"
    path: str | None
    name: str
    public: str


@message
class RevokeOutcome:
    """What a revoke does, and the fingerprint of the key."""

    fingerprint: str
    plan: GrantOutcome = field(metadata=INLINE)


@message
class RevokeKey(Request[RevokeOutcome]):
    """Take back the grants of a key (name or fingerprint) on one path.

    What the key has written there stays, unless `discard` is set.
    """

    command = "revoke"
    path: str
    key: str
    discard: bool = False
    dry_run: bool = False
    signer: OtherKey | None = None


@message
class RenewGossipKey(Request[None]):
    """Make a new gossip key of a closed filesystem."""

    command = "rekey"
    signer: OtherKey | None = None


@message
class PublicKey:
    """A public key and its fingerprint."""

    public: str
    fingerprint: str


@message
class RecoveryState:
    """The root key, and the keys that replace it.

    Attributes:
        identity: of the filesystem.
        root_key: the present root key.
        root_name: its name.
        threshold: how many recovery keys it takes; 0 without any.
        keys: the recovery keys.
        last: the highest number of a recovery so far, 0 without any.
    """

    identity: str
    root_key: PublicKey
    root_name: str
    threshold: int
    keys: list[PublicKey]
    last: int


@message
class GetRecovery(Request[RecoveryState]):
    """How the root key can be replaced."""

    command = "recovery"


@message
class RecoverRootKey(Request[GrantOutcome]):
    """Make a key the root key, and grant anew what counted by the former one.

    Attributes:
        signer: the new root key.
        shares: of the recovery keys.
        drop: keys that are granted nothing then, by name or fingerprint.
        discard: whether what those have written goes as well, unless another key built on it.
    """

    command = "recover"
    signer: OtherKey
    shares: list[str]
    drop: list[str]
    discard: bool = False
    dry_run: bool = False


# -- the state of a filesystem -----------------------------------------------------------------------------------------


@message
class HandlerCounts:
    """The handlers, as `--handler` takes them; how many runs wait and run now, and how those since the start ended."""

    rules: list[str]
    queued: int
    running: int
    done: int
    failed: int
    coalesced: int
    dropped: int


@message
class PendingWork:
    """What a running daemon has to do: names not published yet, and handlers, `None` where there are none."""

    unpublished: int
    handlers: HandlerCounts | None


@message
class Summary:
    """Identity, Merkle hash and sizes.

    Attributes:
        open: whether anybody may read it, and not only its members.
        member: whether a key of this node is one.
        damaged: rows of the log.
        incomplete: contents that are needed and not here; equal logs have equal root hashes all the same.
        bytes: on disk.
        pending: of a running daemon.
    """

    identity: str
    root_hash: str
    open: bool
    member: bool
    damaged: int
    incomplete: int
    entries: int
    blocks: int
    orphans: int
    bytes: int
    pending: PendingWork | None = field(default=None, metadata=INLINE)


@message
class GetSummary(Request[Summary]):
    """The state in few numbers."""

    command = "summary"


@message
class LatestEntry:
    """The entry that arrived last.

    `time`: when it was signed, by the signer's clock.  `action`: as in `RevisionRow`.
    """

    path: str
    entry: str
    action: str
    key: str | None
    fingerprint: str
    time: float
    arrived: float


@message
class PeerLag:
    """Entries that a member lacks and has more, at least.

    `apart`: seconds for which that is known; `None`: nothing is known to differ.  `in_step`: it has told a moment ago
    that it has what is here, and nothing else.  `contents_missing`: it has, and contents are missing on this node.
    `contents_waiting`: contents that it has no room for.
    """

    in_step: bool
    behind: int
    ahead: int
    apart: float | None
    contents_missing: bool = False
    contents_waiting: int = 0


@message
class ClusterMember:
    """A member of the cluster, and what sessions with it have shown.

    Attributes:
        name, address: as Serf knows it; with the address in the name if another member is called the same.
        clones: addresses of other members that use the same key.
        status: `alive` if it has answered, `silent` if only Serf calls it alive, else as Serf knows it.
        own, same_filesystem: whether it is this node, and whether it is one of this filesystem.
        sync_port: as it says.
        push: whether a session stays open over which news goes at once.
        lag: how far the logs are apart; `None` if it has told nothing yet.
        disk_full: whether its disk is full; another member says so once it could not store what was sent to it.
        heard: seconds since it told of its log, `None` if it never did.
        sent, received: bytes of all sessions.
        banned: seconds for which it is banned, because it broke a rule.
        trouble: why the last session failed, '' if it did not.
        refuses: whether it turned this node away in that session.
    """

    name: str
    address: str
    clones: list[str]
    status: str
    own: bool
    same_filesystem: bool
    sync_port: int | None
    push: bool
    lag: PeerLag | None
    disk_full: bool
    heard: float | None
    sent: int
    received: int
    banned: float | None
    trouble: str
    refuses: bool


@message
class ListMembers(Request[list[ClusterMember]]):
    """The members of the cluster, this node included; all that Serf calls alive are asked for their logs."""

    command = "members"


@message
class ForgetMember(Request[None]):
    """Count a member no longer that will not come back; `name` or address."""

    command = "forget"

    name: str


@message
class BusiestKey:
    """The key that has written most in the last hour, or in the one before; `key`: its name, if it has one.

    `bytes`: of files, as its entries state them; `alarm`: whether that is so much that somebody should look at it.
    """

    key: str | None
    fingerprint: str
    entries: int
    bytes: int
    alarm: bool


@message
class RunningNode:
    """A running daemon: when it was started, whether the disk of its log is full, and the members of its cluster.

    `members` is `None` for a single node.  `busiest`: `None` where nothing was written.
    """

    started: float
    disk_full: bool
    members: list[ClusterMember] | None
    busiest: BusiestKey | None = None


@message
class LostContent:
    """A content that no member has that answers.

    `newest`: whether it is newer than what its path shows, so that to write the file again would replace it.
    """

    path: str
    entry: str
    newest: bool


@message
class Status:
    """The summary, the newest entry, conflicts, this node's keys, and where they may write.

    `limit_reached`: the setting because of which the contents of other nodes wait, '' if they come.
    `lost_contents`: the incomplete ones, if none of the members that answer has any of them.
    """

    summary: Summary = field(metadata=INLINE)
    latest: LatestEntry | None
    limit_reached: str
    conflicts: int
    fingerprints: list[str]
    may_write: list[str]
    lost_contents: list[LostContent] = field(default_factory=list)
    node: RunningNode | None = field(default=None, metadata=INLINE)


@message
class GetStatus(Request[Status]):
    """The state of a filesystem."""

    command = "status"


@message
class PartialContent:
    """A content of which blocks are missing.

    Attributes:
        progress: `stalled`, `receiving`, `no room`, `withheld` or `spoiled`.
        quiet: seconds since the last block came.
    """

    path: str
    entry: str
    progress: str
    blocks: int
    bytes: int
    size: int
    quiet: float


@message
class ContentState:
    """How many blocks there are in all, and the contents that are not complete."""

    blocks: int
    contents: list[PartialContent]


@message
class GetContentState(Request[ContentState]):
    """The contents that are not complete."""

    command = "blocks"


@message
class AddToLog(Request[AddResult]):
    """Take in encoded entries and blocks, as from a peer."""

    command = "import"
    entries: Sequence[bytes]
    blocks: Sequence[bytes]


@message
class CheckView(Request[list[str]]):
    """The paths where the live view differs from one made from scratch."""

    command = "check_view"


# -- a running daemon --------------------------------------------------------------------------------------------------


@message
class Ping(Request[float]):
    """Answered at once, with the seconds that the replica's lock took."""

    command = "ping"


@message
class Publish(Request[int]):
    """Publish what was saved; the answer is the number of names that cannot be published."""

    command = "publish"


@message
class Stop(Request[None]):
    """End a daemon without a mount."""

    command = "stop"


@message
class NetworkState:
    """Counters of gossip and sync.

    Attributes:
        sent, received, dropped, missed, malformed, refused: gossip events, and entries and blocks in them that the log
            refused.
        foreign: members of other filesystems.
        queued: events that wait here.
        sync_rejected: entries and blocks that sessions brought and the log refused.
        encrypted: whether gossip is.
        serf_pid: the process of the Serf agent, `None` while there is none.
        serf_connected, serf_trouble, serf_restarts: whether it answers, why no node let it join, and how often it was
            started again.
        standing: addresses of the peers with which sessions stay open.
    """

    sent: int
    received: int
    dropped: int
    missed: int
    malformed: int
    refused: int
    foreign: int
    queued: int
    sync_rejected: int
    encrypted: bool
    serf_pid: int | None
    serf_connected: bool
    serf_trouble: str
    serf_restarts: int
    standing: list[str]


@message
class GetNetwork(Request[NetworkState]):
    """Counters of gossip and sync.  Raises `Unsupported` on a single node."""

    command = "network"


@message
class TrafficTotals:
    """Bytes since the start, by protocol, and the depths of queues; `serf_pid`: the process of the agent."""

    serf_pid: int | None
    queued: int
    serf_queued: int
    serf_udp_sent: int
    serf_udp_received: int
    serf_tcp_sent: int
    sync_sent: int
    sync_received: int


@message
class ResourceTotals:
    """Levels, and totals since the start; `traffic`: `None` on a single node."""

    entries: int
    blocks: int
    unpublished: int
    handlers_queued: int | None
    traffic: TrafficTotals | None = field(default=None, metadata=INLINE)


@message
class GetResources(Request[ResourceTotals]):
    """What `basefs resources` reads again and again."""

    command = "resources"


@message
class NodeClock:
    """The clock of another node: seconds that it is ahead of ours, give or take `doubt` seconds."""

    name: str
    offset: float
    doubt: float


@message
class GetClocks(Request[list[NodeClock]]):
    """By how many seconds the clocks of the other nodes are ahead, as far as they answer within `timeout` seconds."""

    command = "clocks"
    timeout: float


@message
class ComparedView:
    """What another node shows: `same`, `differs`, or `unknown` if it did not answer or has another log now."""

    name: str
    view: str


@message
class CompareViews(Request[list[ComparedView]]):
    """Whether the other nodes show the same, as far as they answer within `timeout` seconds."""

    command = "compare_views"
    timeout: float


@message
class WatchedChange:
    """A change of a path.

    Attributes:
        seen: when it became visible on this node.
        entry: the entry that the path ends with; `None` if unknown.
        key, fingerprint: of the key that signed it; `None` if unknown.
    """

    type: str
    path: str
    kind: str
    seen: float
    entry: str | None
    key: str | None
    fingerprint: str | None


@message
class WatchItem:
    """The token from which to go on, and the change before it, `None` where nothing happened that was asked for."""

    token: str
    change: WatchedChange | None = field(default=None, metadata=INLINE)


@message
class Watch(Request[WatchItem]):
    """The changes at and below a path, as a stream without an end; `since`: the token after which to begin."""

    command = "watch"
    path: str
    since: str | None = None


#: What answers each request.
Handlers = dict[type[Request[Any]], Callable[[Any], Any]]

#: Command -> request.
REQUESTS: dict[str, type[Request[Any]]] = {request.command: request for request in Request.__subclasses__()}

# -- JSON --------------------------------------------------------------------------------------------------------------


def encode(value: Any) -> Json:
    """A message, or anything of which messages are made, as JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found: dict[str, Json] = {}
        for part in dataclasses.fields(value):
            inner = encode(getattr(value, part.name))
            if not part.metadata.get("inline"):
                found[part.name] = inner
            elif inner is not None:
                found.update(inner)
        return found
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return value


def decode(kind: Any, value: Json) -> Any:
    """The inverse of `encode`, for a type.  Raises `ValueError`, `TypeError`, `KeyError` for JSON of another type."""
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        (kind,) = (option for option in typing.get_args(kind) if option is not type(None))
        return None if value is None else decode(kind, value)
    _complete(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _decode_message(kind, value)
    if origin is not None:
        made = tuple if origin is tuple else list
        return made(decode(typing.get_args(kind)[0], item) for item in value)
    return base64.b64decode(value) if kind is bytes else value


def _decode_message(kind: type, value: Json) -> Any:
    if not isinstance(value, dict):
        raise TypeError(f"no {kind.__name__}: {value!r:.100}")
    found = {}
    for part in _fields(kind):
        if part.is_in(value):
            found[part.name] = decode(part.kind, value if part.inlined else value[part.name])
    return kind(**found)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message: its name, its type, and for an inline one the names that it has in JSON."""

    name: str
    kind: Any
    inlined: frozenset[str]

    def is_in(self, value: dict[str, Json]) -> bool:
        return self.inlined <= value.keys() if self.inlined else self.name in value


@functools.cache
def _fields(kind: type) -> tuple[_Field, ...]:
    _complete(kind)
    types_of = typing.get_type_hints(kind)
    found = []
    for part in dataclasses.fields(kind):
        names: frozenset[str] = frozenset()
        if part.metadata.get("inline"):
            options = typing.get_args(types_of[part.name]) or (types_of[part.name],)
            names = frozenset(one.name for one in _fields(options[0]) if not one.inlined)
        found.append(_Field(part.name, types_of[part.name], names))
    return tuple(found)


def answer_type(request: type[Request[Any]]) -> Any:
    """The type of the answer to a request."""
    (base,) = request.__orig_bases__  # type: ignore[attr-defined]
    return typing.get_args(base)[0]


def decode_request(command: str, arguments: dict[str, Json]) -> Request[Any]:
    """The request that came through the socket.  Raises `UsageError` for a command that is not known."""
    if command not in REQUESTS:
        raise UsageError(f"the daemon does not know the command {command!r}: is it another version?")
    try:
        request: Request[Any] = decode(REQUESTS[command], arguments)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"the daemon does not understand the command {command!r}: {error}") from None
    return request


def decode_answer(request: Request[Answer], value: Json) -> Answer:
    """The answer that came through the socket.  Raises `DaemonError` for one that makes no sense."""
    try:
        answer: Answer = decode(answer_type(type(request)), value)
    except (ValueError, TypeError, KeyError) as error:
        raise DaemonError(f"cannot decode the daemon's answer to {request.command}: {error}") from None
    return answer
