"""Anti-entropy: two logs compare Merkle trees over one connection until they are equal (paper, section 3.2.2).

The wire is specified in `docs/sync-protocol.md`.  From the ground up:

    interface   what the log must offer (`LogState`), and `memory`, a log in a dictionary that offers it
    limits      every limit, with the argument for its value
    messages    one class a line;  wire: lines <-> messages;  lines: bytes <-> lines
    index       the items of one path, by prefix;  compare: their list against ours, a pure function
    parcels     entries and blocks packed into lines;  intake: what arrives, on its way into the log
    outbox      what is to be sent, lazily;  answers: what each request is answered with
    states      states x events;  protocol: `SyncProtocol`, the core without I/O and without a clock
    penalty, schedule   whom to refuse, whom to talk to: pure, time is an argument
    shell, service      the only modules that import asyncio
"""
