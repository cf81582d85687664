"""Every limit of the sync protocol, with its unit, its reason, and what a larger or smaller value costs.

The constants are part of the version: both sides must agree on them.  `Limits` are one node's own affair.
"""

from __future__ import annotations

from dataclasses import dataclass

VERSION = 3

#: Bytes of a line, without its newline.  A 32 KiB block takes 43.7 KiB in base64 and the longest possible LS 53.6 KiB;
#: larger means more memory for what a stranger may send before it is judged, smaller would need lists in parts.
MAX_LINE = 64 * 1024

#: Items of one kind (own entries, children) that an LS lists one by one.  With more, it carries aggregates of 16
#: prefixes.  Larger: a one-item difference costs a longer list; smaller: one more round trip for middling directories.
#: 48 children with the longest names, 48 entries and the longest path still fit into one line.
MAX_ITEMS = 48

#: Hashes in one ENTRY_REQ: all that one LS can make a node ask for.
MAX_HASHES = MAX_ITEMS

#: The largest number of entries or requests that a line may tell: nobody reaches it, and JSON has it exactly.
MAX_NUMBER = 2**53

#: Items in one ENTRIES or BLOCKS line.  We send 32 entries, or up to 420 blocks of one byte; more would let a line of
#: many tiny fields cost far more time than its bytes are worth.
MAX_DATA_ITEMS = 512

#: Entries that are kept back for a peer of a standing session which is told root hashes only.  What is sent in vain
#: costs up to 1 kB an entry, what is not kept costs a comparison of some 2 kB.
MAX_KEPT = 8

#: Requests that may wait for their answer, in each direction.  More would pipeline better over long links (256 LS per
#: round trip already settle 2500 differing paths a second at 100 ms), and cost the peer memory.
MAX_REQUESTS = 256

#: Hashes in one BLOCK_REQ: 1 MiB of large blocks.  Larger: more waits behind a peer that turns out to be slow; smaller:
#: more requests.
MAX_BLOCKS = 32

#: Bytes of those requests: one more may be sent while they are below this.  Bounds what a peer makes us hold.
REQUEST_WINDOW = 1024 * 1024

#: Bytes of blocks that follow a write entry unasked.  Larger: fewer round trips for small files, more waste where the
#: receiver has the content already.
INLINE_BLOCKS = 64 * 1024

#: Bytes of blocks that may come twice, or that others bring while a peer lets us wait.  Smaller: a node that was told
#: to wait, and gets little elsewhere, gives up its place; larger: more comes in vain when its turn is there.
MAX_REPEATED = 256 * 1024

#: Seconds until a peer that was told to wait is told so again, so that it does not give up.
STILL_WAITING = 10.0

#: Entries in one line, and their hashes looked up without a pause.
ENTRIES_PER_SLICE = 32


@dataclass(frozen=True, slots=True)
class Limits:
    """What a node allows one session.

    Attributes:
        rejected: entries and blocks refused by the log before the peer is told off and closed.  An honest peer causes
            a few when it and we learn a new key at the same moment; each may cost us one signature check (100 us).
        barren: what was asked for, and is not there, although the peer itself has listed it.  No honest peer does that,
            since nothing leaves a log; each costs a request.
        again: entries sent before the limit of twice the log applies.  An honest peer asks for nothing twice in a
            session; each costs 60 us.
        known: entries received since one was last new; each costs some 6 us.  An honest peer sends as many only where
            somebody else was quicker, which is no offence (`Progress`).
        useless_bytes: bytes received since an entry or block was last accepted or sent.  Comparing 100 000 paths takes
            some 15 MB; a smaller limit would cut that off, a larger one lets a peer waste our bandwidth.
        rounds: comparisons in one session.  A second one is needed where logs grew meanwhile; the periodic session
            does the rest, so a busy pair does not hold its slot for ever.
        batch: entries given to the log in one call, which is a transaction: more save pages that several of them would
            write anew, fewer keep the other sessions of this node waiting for a shorter time: one after the other gives
            its batch to the log, in a worker thread (an entry costs 200 us).
        orphan_bytes: entries kept while their parents are on the way.  Overflow is not lost, but costs one more round.
        backlog: bytes of requests that wait for room in the window (about 120 each).  Same on overflow.
        asked: blocks asked for in one session (28 bytes each, about 100 in memory).  Same on overflow.
        greeting_timeout: seconds until the first line of the peer is complete.
        idle_timeout: seconds in which nothing moves in either direction.  Must exceed the time that a slow machine
            takes to verify what its socket buffers hold (4 MiB: about 2 s, on a machine shared by 30 nodes 60 s).
        heartbeat: seconds until a new root hash is told over a session that stands, so that what a push has lost is
            found; and between two attempts to fetch what such a hash has shown to be missing.
        silence: seconds until a root hash is told again although nothing has changed, to show that this node is there.
            Must be well below `idle_timeout`.
        push_backlog: bytes of pushes that wait for a slow connection; beyond that the peer is told to compare instead.
        stall_timeout: seconds without an entry or block accepted or sent, however busy the line is.
    """

    rejected: int = 256
    barren: int = 256
    again: int = 256
    known: int = 16_384
    useless_bytes: int = 32 * 1024 * 1024
    rounds: int = 8
    batch: int = 128
    orphan_bytes: int = 4 * 1024 * 1024
    backlog: int = 8 * 1024 * 1024
    asked: int = 65_536
    greeting_timeout: float = 10.0
    heartbeat: float = 5.0
    silence: float = 25.0
    push_backlog: int = 256 * 1024
    idle_timeout: float = 60.0
    stall_timeout: float = 300.0


DEFAULT_LIMITS = Limits()
#: Of a node that does nothing but fetch.
NEWCOMER_LIMITS = Limits(batch=512)
