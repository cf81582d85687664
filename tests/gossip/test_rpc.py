"""The RPC codec, without an agent: the bytes below were recorded from one (0.8.2-dev), as `test_rpc_agent` checks."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import LocalProtocolError, RemoteProtocolError
from basefs.gossip.rpc import COMMANDS, MAX_MESSAGE, MAX_STOPPED, Response, RpcCodec, StreamRecord


def raw(*values: Any) -> bytes:
    """As Serf's codec writes it: text and binary alike as raw."""
    return b"".join(msgpack.packb(value, use_bin_type=False) for value in values)


def head(seq: int, error: str = "") -> dict[str, Any]:
    return {"Error": error, "Seq": seq}


EVENT = {"Event": "user", "LTime": 1, "Name": "b", "Payload": bytes(range(256)) * 2, "Coalesce": False}
MEMBERS = {"Members": [{"Name": b"caf\xe9", "Addr": b"\x7f\x00\x00\x01", "Port": 1, "Tags": {"k": "v"}}]}
MEMBERS_TEXT = {"Members": [{"Name": "caf\udce9", "Addr": b"\x7f\x00\x00\x01", "Port": 1, "Tags": {"k": "v"}}]}
REFUSED = "illegal base64 data at input byte 0"

#: Requests, the agent's bytes, what they mean.
CASES: list[tuple[str, list[tuple[str, Any]], bytes, list[Any]]] = [
    (
        "handshake, auth",
        [("handshake", {"Version": 1}), ("auth", {"AuthKey": "k"})],
        raw(head(0), head(1, "Invalid authentication token")),
        [Response(0, "handshake", "", {}), Response(1, "auth", "Invalid authentication token", {})],
    ),
    ("members", [("members", None)], raw(head(0), MEMBERS), [Response(0, "members", "", MEMBERS_TEXT)]),
    (
        "a refusal has no body",
        [("members", None), ("join", {"Existing": [], "Replay": False}), ("list-keys", None)],
        raw(head(0, "Authentication required"), head(1, "Handshake required"), head(2, "Unsupported command")),
        [
            Response(0, "members", "Authentication required", {}),
            Response(1, "join", "Handshake required", {}),
            Response(2, "list-keys", "Unsupported command", {}),
        ],
    ),
    (
        "a failed join has a body",
        [("join", {"Existing": ["x:1"], "Replay": True}), ("stop", {"Stop": 999})],
        raw(head(0, "no"), {"Num": 0}, head(1)),
        [Response(0, "join", "no", {"Num": 0}), Response(1, "stop", "", {})],
    ),
    (
        "a failed key command has a body",
        [("use-key", {"Key": "zz"})],
        raw(head(0, REFUSED), {"Keys": None, "Messages": {}}),
        [Response(0, "use-key", REFUSED, {"Keys": None, "Messages": {}})],
    ),
    (
        "a failed event has none",
        [("event", {"Name": "b", "Payload": b"", "Coalesce": False}), ("stats", None)],
        raw(head(0, "too big"), head(1), {"serf": {"event_queue": "0"}}),
        [Response(0, "event", "too big", {}), Response(1, "stats", "", {"serf": {"event_queue": "0"}})],
    ),
    (
        "a stream between replies, and records after its stop",
        [("stream", {"Type": "user:b"}), ("members", None), ("stop", {"Stop": 0})],
        raw(head(0), head(0), EVENT, head(1), MEMBERS, head(0), EVENT, head(2), head(0), EVENT, head(0), EVENT),
        [
            Response(0, "stream", "", {}),
            StreamRecord(0, "stream", EVENT),
            Response(1, "members", "", MEMBERS_TEXT),
            StreamRecord(0, "stream", EVENT),
            Response(2, "stop", "", {}),
        ],
    ),
    (
        "a refused stream",
        [("stream", {"Type": "bogus"})],
        raw(head(0, "Invalid event filter")),
        [Response(0, "stream", "Invalid event filter", {})],
    ),
    (
        "a query whose time is over",
        [("query", {"Name": "q"})],
        raw(
            head(0),
            *(head(0), {"Type": "ack", "From": "", "Payload": None}),
            *(head(0), {"Type": "response", "From": "", "Payload": None}),
            *(head(0), {"Type": "done", "From": ""}),
        ),
        [Response(0, "query", "", {}), StreamRecord(0, "query", {"Type": "done", "From": ""}, final=True)],
    ),
    (
        "a query until it is done",
        [("query", {"Name": "q"})],
        raw(head(0), head(0), {"Type": "ack", "From": "a", "Payload": None}, head(0), {"Type": "done", "From": ""}),
        [
            Response(0, "query", "", {}),
            StreamRecord(0, "query", {"Type": "ack", "From": "a", "Payload": None}),
            StreamRecord(0, "query", {"Type": "done", "From": ""}, final=True),
        ],
    ),
]
IDS = [case[0] for case in CASES]


def requested(requests: list[tuple[str, Any]]) -> RpcCodec:
    codec = RpcCodec()
    for seq, (command, body) in enumerate(requests):
        assert codec.request(command, body)[0] == seq
    return codec


@pytest.mark.parametrize(("name", "requests", "data", "expected"), CASES, ids=IDS)
def test_three_ways(name: str, requests: list[tuple[str, Any]], data: bytes, expected: list[Any]) -> None:
    assert requested(requests).receive_data(data) == expected
    codec = requested(requests)
    assert [event for byte in data for event in codec.receive_data(bytes([byte]))] == expected
    codec = requested(requests)
    seq, _ = codec.request("leave")
    tail = raw(head(seq))
    assert codec.receive_data(data + tail[:-1]) == expected
    assert codec.receive_data(tail[-1:]) == [Response(seq, "leave", "", {})]


def test_requests_are_written_as_serf_reads_them() -> None:
    codec = RpcCodec()
    body = {"Name": "caf\udce9", "Payload": b"\xff\x00" * 256, "Coalesce": False}
    seq, data = codec.request("event", body)
    unpacker = msgpack.Unpacker(raw=True)
    unpacker.feed(data)
    assert list(unpacker) == [
        {b"Command": b"event", b"Seq": seq},
        {b"Name": b"caf\xe9", b"Payload": b"\xff\x00" * 256, b"Coalesce": False},
    ]
    assert codec.request("members") == (1, raw({"Command": "members", "Seq": 1}))


@pytest.mark.parametrize(
    ("command", "body"),
    [
        ("nonsense", None),
        ("members", {}),
        ("join", None),
        ("join", {"Existing": [], "Wrong": 1}),
        ("event", {"Name": object()}),
        ("stop", {"Stop": 2**64}),
    ],
)
def test_requests_outside_the_table(command: str, body: Any) -> None:
    with pytest.raises(LocalProtocolError):
        RpcCodec().request(command, body)


@pytest.mark.parametrize(
    "data",
    [
        raw(7),
        raw([1]),
        raw({}),
        raw({"Seq": "x", "Error": ""}),
        raw({"Seq": 0, "Error": 1}),
        raw({"Seq": 0, "Error": "", "More": 1}),
        raw(head(9)),
        raw(head(0), 5),
        raw({1: 2}),
        b"\xc1",
        b"\xd6\xff" + bytes(3) + b"\x01\xc1",
        b"\xd5\xff\x00\x00",
        b"\x91" * 100_000,
    ],
)
def test_rules_broken_by_the_agent(data: bytes) -> None:
    codec = requested([("members", None)])
    with pytest.raises(RemoteProtocolError):
        codec.receive_data(data)
    with pytest.raises(RemoteProtocolError):
        codec.receive_data(raw(head(0), MEMBERS))


@pytest.mark.parametrize(
    "records", [raw(head(0, "oops")), raw(head(0), head(0), {"Type": "done"}, head(0))], ids=["error", "after the end"]
)
def test_a_query_that_goes_wrong(records: bytes) -> None:
    codec = requested([("query", {"Name": "q"})])
    codec.receive_data(raw(head(0)) if records == raw(head(0, "oops")) else b"")
    with pytest.raises(RemoteProtocolError):
        codec.receive_data(records)


def test_a_very_long_message() -> None:
    body = {"x": "y" * (MAX_MESSAGE - 65536 - 100)}
    assert requested([("stats", None)]).receive_data(raw(head(0), body)) == [Response(0, "stats", "", body)]


@pytest.mark.parametrize("start", [b"\x81\xa1x\xdb\xff\xff\xff\xff", b"\xdc\xff\xff"], ids=["text", "list"])
def test_a_message_that_never_ends_is_cut_off(start: bytes) -> None:
    codec = requested([("stats", None)])
    codec.receive_data(raw(head(0)) + start)
    item = b"\xda\xff\xfd" + bytes(65533)
    for _ in range(MAX_MESSAGE // 65536 - 1):
        assert codec.receive_data(item) == []
    with pytest.raises(RemoteProtocolError):
        codec.receive_data(item + item)


def test_stopped_streams_are_forgotten_in_order() -> None:
    codec = RpcCodec()
    for _ in range(MAX_STOPPED + 1):
        seq, _ = codec.request("stream", {"Type": "*"})
        stop, _ = codec.request("stop", {"Stop": seq})
        codec.receive_data(raw(head(seq), head(stop)))
    assert codec.receive_data(raw(head(2), EVENT)) == []
    with pytest.raises(RemoteProtocolError):
        codec.receive_data(raw(head(0)))


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_events_or_a_remote_error(data: bytes, bytewise: bool) -> None:
    codec = requested([(name, None if row.keys is None else {}) for name, row in COMMANDS.items() if name != "stop"])
    try:
        for piece in [data[i : i + 1] for i in range(len(data))] if bytewise else [data]:
            codec.receive_data(piece)
    except RemoteProtocolError:
        pass


@given(st.integers(0, len(CASES) - 1), st.data())
def test_a_changed_conversation_is_events_or_a_remote_error(index: int, data: st.DataObject) -> None:
    _, requests, original, _ = CASES[index]
    changed = bytearray(original)
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(RemoteProtocolError):
        requested(requests).receive_data(bytes(changed))
