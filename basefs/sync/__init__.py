"""Anti-entropy: two logs compare Merkle trees over one connection until they are equal (paper, section 3.2.2).

The wire is specified in `docs/sync-protocol.md`.  What the log must offer is `LogState` (`basefs/log/interface.py`).

    wire/       limits: every limit with its reason;  messages: one class a line;  codec: bytes <-> lines <-> messages
    session/    one session without I/O and without a clock.  protocol: `SyncProtocol`, the state machine;
                states: states x events as data;  compare: their list against ours;  requests: the queue of what is to
                be sent;  responder: answers;  receiver: what arrives, on its way into the log;  inflight: what all
                sessions of a node have asked for;  push: a session that stands;  result: how a session went
    net/        transport: a core on a connection;  server: accepting;  service: the sessions of a node;  neighbours:
                those that stay open;  uplink: whose turn it is;  peers: contacts and bans
"""
