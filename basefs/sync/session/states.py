"""States x events of a session, as data.  All state logic is here; an event that is not listed breaks a rule.

The initiator opened the connection.  Requests are LS, and those that end with REQ, data are ENTRIES and BLOCKS.
Other events in lower case are our own: the responder `settle`s when it has nothing outstanding and says so with CLOSE
(or SAME); the initiator, told so and with nothing left to ask, goes `again` if the logs still differ and something was
gained, else it `agree`s, with CLOSE, or `offer`s to keep the session, with STAY; the responder `keep`s it, with STAY,
or agrees to end it.  A session that stands is ended by either side, with CLOSE (`agree`).  `broken` is every other end:
connection lost, time-out, a rule broken by the peer.
"""

from __future__ import annotations

import enum

from basefs.errors import RemoteProtocolError


class Role(enum.Enum):
    """Which side of the connection this is."""

    INITIATOR = "initiator"
    RESPONDER = "responder"


class SessionState(enum.Enum):
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


class SessionEvent(enum.Enum):
    """What happens to a session."""

    HASH = "HASH"
    SAME = "SAME"
    REQUEST = "request"
    DATA = "data"
    EOF = "EOF"
    WAIT = "WAIT"
    CLOSE = "CLOSE"
    STAY = "STAY"
    ROOT = "ROOT"
    HAVE = "HAVE"
    WANT = "BLOCK_REQ"
    PRUNE = "PRUNE"
    GRAFT = "GRAFT"
    REFUSE = "CLOSE NO"
    SETTLE = "settle"
    AGAIN = "again"
    AGREE = "agree"
    OFFER = "offer"
    KEEP = "keep"
    BROKEN = "broken"


_ENDS = {SessionEvent.REFUSE: SessionState.FAILED, SessionEvent.BROKEN: SessionState.FAILED}
_EXCHANGE = {
    SessionEvent.REQUEST: SessionState.TALKING,
    SessionEvent.DATA: SessionState.TALKING,
    SessionEvent.EOF: SessionState.TALKING,
    SessionEvent.WAIT: SessionState.TALKING,
}

_STANDING = {
    SessionEvent.DATA: SessionState.STANDING,
    SessionEvent.EOF: SessionState.STANDING,
    SessionEvent.ROOT: SessionState.STANDING,
    SessionEvent.HAVE: SessionState.STANDING,
    SessionEvent.WANT: SessionState.STANDING,
    SessionEvent.PRUNE: SessionState.STANDING,
    SessionEvent.GRAFT: SessionState.STANDING,
    SessionEvent.CLOSE: SessionState.DONE,
    SessionEvent.AGREE: SessionState.DONE,
    **_ENDS,
}

TRANSITIONS: dict[Role, dict[SessionState, dict[SessionEvent, SessionState]]] = {
    Role.INITIATOR: {
        SessionState.GREETING: {
            SessionEvent.HASH: SessionState.TALKING,
            SessionEvent.SAME: SessionState.TALKING,
            **_ENDS,
        },
        SessionState.TALKING: {
            **_EXCHANGE,
            SessionEvent.CLOSE: SessionState.TALKING,
            SessionEvent.AGAIN: SessionState.GREETING,
            SessionEvent.AGREE: SessionState.DONE,
            SessionEvent.OFFER: SessionState.OFFERED,
            **_ENDS,
        },
        SessionState.SETTLED: {},
        SessionState.OFFERED: {
            SessionEvent.STAY: SessionState.STANDING,
            SessionEvent.CLOSE: SessionState.DONE,
            **_ENDS,
        },
        SessionState.STANDING: _STANDING,
        SessionState.DONE: {SessionEvent.BROKEN: SessionState.DONE},
        SessionState.FAILED: {SessionEvent.BROKEN: SessionState.FAILED},
    },
    Role.RESPONDER: {
        SessionState.GREETING: {SessionEvent.HASH: SessionState.TALKING, **_ENDS},
        SessionState.TALKING: {**_EXCHANGE, SessionEvent.SETTLE: SessionState.SETTLED, **_ENDS},
        SessionState.SETTLED: {
            SessionEvent.REQUEST: SessionState.TALKING,
            SessionEvent.HASH: SessionState.TALKING,
            SessionEvent.WAIT: SessionState.SETTLED,  # the initiator asks later
            SessionEvent.CLOSE: SessionState.DONE,
            SessionEvent.STAY: SessionState.OFFERED,
            **_ENDS,
        },
        SessionState.OFFERED: {
            SessionEvent.KEEP: SessionState.STANDING,
            SessionEvent.AGREE: SessionState.DONE,
            **_ENDS,
        },
        SessionState.STANDING: _STANDING,
        SessionState.DONE: {SessionEvent.BROKEN: SessionState.DONE},
        SessionState.FAILED: {SessionEvent.BROKEN: SessionState.FAILED},
    },
}


def follow(role: Role, state: SessionState, event: SessionEvent) -> SessionState:
    """The next state.  Raises `RemoteProtocolError` if the event has no place in this state."""
    try:
        return TRANSITIONS[role][state][event]
    except KeyError:
        raise RemoteProtocolError(f"{event.value} has no place in state {state.value}") from None
