"""Serf's RPC protocol without I/O: bytes in, replies and records out; requests in, bytes out.

Both directions are msgpack maps without framing: a header (`Command`, `Seq` or `Seq`, `Error`), then perhaps a body.
Nothing on the wire says whether a body follows, so the table `COMMANDS` does.  It was read from Serf's
`cmd/serf/command/agent/ipc.go` and `client/rpc_client.go` and then checked against a real agent (0.8.2-dev), each
command with and without an error (`tests/gossip/test_rpc_agent.py`).

Rules that are not in Serf's documentation:

1. A refusal before dispatch (`_REFUSALS`) never has a body, whatever the command.
2. A request refused for lack of authentication leaves its body in the agent's input, which takes it for another header
   and refuses once more, under the same sequence number.  So handshake and auth come first, and their failure ends the
   connection.
3. Records of a stream may arrive after the reply to `stop` (the agent still drains its buffer), so a stopped stream's
   number stays known, and its records are dropped.
4. The agent runs the requests of one connection one after another: a `join` of a dead address delays all that follow.
5. Once the time of a query is over, the agent may send answers without a sender, acknowledged or not, until the record
   `done` (hashicorp/serf, issue 408).  They are dropped.
6. Strings and binary are both msgpack "raw" (the agent's codec predates msgpack's bin type), so the key tells them
   apart: `Payload` and `Addr` are bytes, everything else is text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgpack

from basefs.errors import LocalProtocolError, RemoteProtocolError

Body = dict[str, Any]

#: Longest message from the agent, bytes.  `members` of 10 000 nodes is about 3 MB; no limit would let a broken agent
#: take all our memory.
MAX_MESSAGE = 16 * 1024 * 1024
#: Stopped streams whose late records are still recognised.  A record of an older one ends the connection.
MAX_STOPPED = 4096

_PIECE = 65536
_REFUSALS = frozenset({"Handshake required", "Authentication required", "Unsupported command"})
_BINARY_KEYS = frozenset({"Payload", "Addr"})


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the table.

    `keys`: keys of the request body, None where there is no body.  `body`: a body follows a reply without an error.
    `error_body`: one follows a reply with an error, too.  `streams`: after the first reply, records (header and body)
    come under the same sequence number until `stop`, or until a record of the `last` type.
    """

    name: str
    keys: frozenset[str] | None = None
    body: bool = False
    error_body: bool = False
    streams: bool = False
    last: str | None = None


def _table(commands: Iterable[Command]) -> dict[str, Command]:
    return {command.name: command for command in commands}


_KEY = frozenset({"Key"})

COMMANDS = _table(
    [
        Command("handshake", frozenset({"Version"})),
        Command("auth", frozenset({"AuthKey"})),
        Command("event", frozenset({"Name", "Payload", "Coalesce"})),
        Command("force-leave", frozenset({"Node", "Prune"})),
        Command("join", frozenset({"Existing", "Replay"}), body=True, error_body=True),
        Command("members", body=True),
        # A regular expression that does not compile is not answered: the agent hangs up.
        Command("members-filtered", frozenset({"Tags", "Status", "Name"}), body=True),
        Command("tags", frozenset({"Tags", "DeleteTags"})),
        Command("stream", frozenset({"Type"}), streams=True),
        Command("stop", frozenset({"Stop"})),
        Command("monitor", frozenset({"LogLevel"}), streams=True),
        Command("leave"),
        Command(
            "query",
            frozenset({"FilterNodes", "FilterTags", "RequestAck", "RelayFactor", "Timeout", "Name", "Payload"}),
            streams=True,
            last="done",
        ),
        Command("respond", frozenset({"ID", "Payload"})),
        Command("install-key", _KEY, body=True, error_body=True),
        Command("use-key", _KEY, body=True, error_body=True),
        Command("remove-key", _KEY, body=True, error_body=True),
        Command("list-keys", body=True, error_body=True),
        Command("stats", body=True),
        Command("get-coordinate", frozenset({"Node"}), body=True),
    ]
)


@dataclass(frozen=True, slots=True)
class Response:
    """The reply to one request.  `error` is empty when it was granted; `body` is {} where the command has none."""

    seq: int
    command: str
    error: str
    body: Body


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One record of a stream, monitor or query.  `final`: no more come under this number."""

    seq: int
    command: str
    body: Body
    final: bool = False


class RpcCodec:
    """One RPC connection's state: which numbers await a reply, which are streams, whether a body is due.

    After an error the codec is dead: every further call raises, because message boundaries are lost.
    """

    def __init__(self) -> None:
        self._next = 0
        self._pending: dict[int, Command] = {}
        self._streams: dict[int, Command] = {}
        self._stopped: dict[int, None] = {}  # a set that remembers its order
        self._stopping: dict[int, int] = {}  # number of a stop request -> the stream it ends
        self._header: tuple[int, str] | None = None  # a header that was read and whose body is due
        self._failed = False
        self._unfinished = 0  # bytes since the last whole message, to within a piece
        self._unpacker = msgpack.Unpacker(raw=True, strict_map_key=True, max_buffer_size=MAX_MESSAGE)

    def request(self, command: str, body: Body | None = None) -> tuple[int, bytes]:
        """The number and the bytes of a request.  Raises LocalProtocolError if the table does not allow it."""
        row = COMMANDS.get(command)
        if row is None:
            raise LocalProtocolError(f"Serf has no command {command!r}")
        if (body is None) != (row.keys is None):
            raise LocalProtocolError(f"{command} {'needs a' if body is None else 'has no'} body")
        if body is not None and row.keys is not None and not body.keys() <= row.keys:
            raise LocalProtocolError(f"{command} has no {', '.join(sorted(body.keys() - row.keys))}")
        seq = self._next
        try:
            data = _pack({"Command": command, "Seq": seq}) + (b"" if body is None else _pack(body))
        except (TypeError, ValueError, OverflowError) as error:
            raise LocalProtocolError(f"{command}: {error}") from error
        self._next += 1
        self._pending[seq] = row
        if command == "stop" and body is not None:
            self._stopping[seq] = body["Stop"]
        return seq, data

    def receive_data(self, data: bytes) -> list[Response | StreamRecord]:
        """Everything that `data` completes.  Raises RemoteProtocolError if the agent broke the rules."""
        if self._failed:
            raise RemoteProtocolError("the RPC connection failed earlier")
        try:
            out: list[Response | StreamRecord] = []
            # A piece at a time: the unpacker's buffer has room for one message, not for all that may come at once.
            for start in range(0, len(data), _PIECE):
                piece = data[start : start + _PIECE]
                # The buffer's limit does not hold for a list of many short items, which are unpacked as they come.
                self._unfinished += len(piece)
                if self._unfinished > MAX_MESSAGE:
                    raise RemoteProtocolError(f"the Serf agent sent a message of over {MAX_MESSAGE} bytes")
                self._unpacker.feed(piece)
                for item in self._unpacker:
                    self._unfinished = 0
                    event = self._accept(_text_keys(item))
                    if event is not None:
                        out.append(event)
            return out
        except RemoteProtocolError:
            self._failed = True
            raise
        except (msgpack.UnpackException, ValueError, TypeError, OverflowError) as error:
            self._failed = True
            raise RemoteProtocolError(f"the Serf agent sent broken msgpack: {error or type(error).__name__}") from error

    def _accept(self, item: Any) -> Response | StreamRecord | None:
        if not isinstance(item, dict):
            raise RemoteProtocolError("the Serf agent sent something that is not a map")
        if self._header is not None:
            (due, refusal), self._header = self._header, None
            return self._reply(due, refusal, item) if due in self._pending else self._record(due, item)
        seq, error = _header(item)
        row = self._pending.get(seq)
        if row is None:
            self._check_stream(seq, error)
        elif error in _REFUSALS or not (row.error_body if error else row.body):
            return self._reply(seq, error, {})
        self._header = (seq, error)
        return None

    def _check_stream(self, seq: int, error: str) -> None:
        """The header of a record, or of nothing that was asked for."""
        if seq not in self._streams and seq not in self._stopped:
            raise RemoteProtocolError(f"the Serf agent answered request {seq}, which is not open")
        if error:
            raise RemoteProtocolError(f"the Serf agent ended a stream: {error}")

    def _reply(self, seq: int, error: str, body: Body) -> Response:
        row = self._pending.pop(seq)
        if row.streams and not error:
            self._streams[seq] = row
        stopped = self._stopping.pop(seq, None)
        if stopped is not None and self._streams.pop(stopped, None) is not None:
            self._stopped[stopped] = None
            if len(self._stopped) > MAX_STOPPED:
                del self._stopped[next(iter(self._stopped))]
        return Response(seq, row.name, error, body)

    def _record(self, seq: int, body: Body) -> StreamRecord | None:
        row = self._streams.get(seq)
        if row is None:
            return None  # rule 3: a late record of a stopped stream
        final = row.last is not None and body.get("Type") == row.last
        if final:
            del self._streams[seq]
        elif row.last is not None and not body.get("From"):
            return None  # rule 5: an answer without a sender
        return StreamRecord(seq, row.name, body, final)


def _header(item: Body) -> tuple[int, str]:
    seq, error = item.get("Seq"), item.get("Error")
    if not isinstance(seq, int) or not isinstance(error, str) or len(item) != 2:
        raise RemoteProtocolError("the Serf agent sent a header without a number or an error")
    return seq, error


def _pack(value: Body) -> bytes:
    # use_bin_type=False: raw strings for both text and bytes, which is all that Serf's codec knows.  Names that are not
    # UTF-8 were decoded with surrogateescape (below) and go back as the same bytes.
    packed: bytes = msgpack.packb(value, use_bin_type=False, unicode_errors="surrogateescape")
    return packed


def _text_keys(value: Any, key: str = "") -> Any:
    """`value` with bytes decoded to text, except below the keys that hold binary."""
    if isinstance(value, bytes):
        return value if key in _BINARY_KEYS else value.decode("utf-8", "surrogateescape")
    if isinstance(value, dict):
        out: Body = {}
        for name, item in value.items():
            text = name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else str(name)
            out[text] = _text_keys(item, text)
        return out
    if isinstance(value, list):
        return [_text_keys(item, key) for item in value]
    return value
