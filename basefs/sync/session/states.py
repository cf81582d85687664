"""States x events of a session, as data.  All state logic is here; an event that is not listed breaks a rule.

The initiator opened the connection.  Requests are LS, PATH_REQ, ENTRY_REQ, BLOCK_REQ and CHAIN_REQ, data are ENTRIES,
BLOCKS and CHAIN, `bearing` is LAZY or EAGER.  Other events in lower case are our own: the responder `settle`s when it
has nothing outstanding and says so with CLOSE (or SAME); the initiator, told so and with nothing left to ask, goes
`again` if the logs still differ and something was gained, else it `agree`s, with CLOSE, or `offer`s to keep the
session, with STAY; the responder `keep`s it, with STAY, or agrees to end it.  A session that stands is ended by either
side, with CLOSE (`agree`).  `broken` is every other end: connection lost, time-out, a rule broken by the peer.
"""

from __future__ import annotations

import enum

from basefs.errors import RemoteProtocolError


class Role(enum.Enum):
    """Which side of the connection this is."""

    INITIATOR = "initiator"
    RESPONDER = "responder"


class State(enum.Enum):
    """Where a session stands."""

    GREETING = "greeting"  # the peer's HASH is awaited
    TALKING = "talking"  # requests and answers
    SETTLED = "settled"  # responder only: CLOSE was sent, the initiator decides
    OFFERED = "offered"  # STAY was sent by the initiator, the responder decides
    STANDING = "standing"  # both stay: what is new goes over the session unasked
    DONE = "done"  # both have closed
    FAILED = "failed"  # refused, broken or lost


class Phase(enum.Enum):
    """What a session brings at this moment."""

    COMPARING = "comparing"  # what differs, and entries
    CONTENTS = "contents"  # blocks and nothing else
    WAITING = "waiting"  # nothing: the peer serves others first


class Event(enum.Enum):
    """What happens to a session."""

    HASH = "HASH"
    SAME = "SAME"
    REQUEST = "request"
    BLOCKS_REC = "BLOCKS_REC"
    DATA = "data"
    EOF = "EOF"
    WAIT = "WAIT"
    CLOSE = "CLOSE"
    STAY = "STAY"
    ROOT = "ROOT"
    BEARING = "bearing"
    REFUSE = "CLOSE NO"
    SETTLE = "settle"
    AGAIN = "again"
    AGREE = "agree"
    OFFER = "offer"
    KEEP = "keep"
    BROKEN = "broken"


_ENDS = {Event.REFUSE: State.FAILED, Event.BROKEN: State.FAILED}
_EXCHANGE = {
    Event.REQUEST: State.TALKING,
    Event.BLOCKS_REC: State.TALKING,
    Event.DATA: State.TALKING,
    Event.EOF: State.TALKING,
    Event.WAIT: State.TALKING,
}

_STANDING = {
    Event.DATA: State.STANDING,
    Event.ROOT: State.STANDING,
    Event.BEARING: State.STANDING,
    Event.CLOSE: State.DONE,
    Event.AGREE: State.DONE,
    **_ENDS,
}

TRANSITIONS: dict[Role, dict[State, dict[Event, State]]] = {
    Role.INITIATOR: {
        State.GREETING: {Event.HASH: State.TALKING, Event.SAME: State.TALKING, **_ENDS},
        State.TALKING: {
            **_EXCHANGE,
            Event.CLOSE: State.TALKING,
            Event.AGAIN: State.GREETING,
            Event.AGREE: State.DONE,
            Event.OFFER: State.OFFERED,
            **_ENDS,
        },
        State.SETTLED: {},
        State.OFFERED: {Event.STAY: State.STANDING, Event.CLOSE: State.DONE, **_ENDS},
        State.STANDING: _STANDING,
        State.DONE: {Event.BROKEN: State.DONE},
        State.FAILED: {Event.BROKEN: State.FAILED},
    },
    Role.RESPONDER: {
        State.GREETING: {Event.HASH: State.TALKING, **_ENDS},
        State.TALKING: {**_EXCHANGE, Event.SETTLE: State.SETTLED, **_ENDS},
        State.SETTLED: {
            Event.REQUEST: State.TALKING,
            Event.BLOCKS_REC: State.TALKING,
            Event.HASH: State.TALKING,
            Event.WAIT: State.SETTLED,  # the initiator will ask when another session of its node has its answers
            Event.CLOSE: State.DONE,
            Event.STAY: State.OFFERED,
            **_ENDS,
        },
        State.OFFERED: {Event.KEEP: State.STANDING, Event.AGREE: State.DONE, **_ENDS},
        State.STANDING: _STANDING,
        State.DONE: {Event.BROKEN: State.DONE},
        State.FAILED: {Event.BROKEN: State.FAILED},
    },
}


def follow(role: Role, state: State, event: Event) -> State:
    """The next state.  Raises `RemoteProtocolError` if the event has no place in this state."""
    try:
        return TRANSITIONS[role][state][event]
    except KeyError:
        raise RemoteProtocolError(f"{event.value} has no place in state {state.value}") from None


def diagram(role: Role) -> str:
    """The table of a role as a Mermaid state diagram, for `docs/sync-protocol.md`."""
    out = ["stateDiagram-v2", f"    [*] --> {State.GREETING.value}"]
    for state, row in TRANSITIONS[role].items():
        targets: dict[State, list[str]] = {}
        for event, target in row.items():
            targets.setdefault(target, []).append(event.value)
        if state in (State.DONE, State.FAILED):
            out.append(f"    {state.value} --> [*]")
            continue
        out += [f"    {state.value} --> {target.value}: {', '.join(events)}" for target, events in targets.items()]
    return "\n".join(out) + "\n"
