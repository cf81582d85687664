"""Sync: two nodes compare their logs over one connection until both are equal (paper, section 3.2.2).

`wire` has the messages, their encoding and every limit; `session` the protocol without I/O and without a clock, with
`SyncProtocol` as its surface; `net` the connections and the sessions of a node, with `SyncService` as its surface.  A
`push session` stays open for changes.  docs/sync-protocol.md specifies the protocol; the log offers `LogState`.

Imports errors, path, tasks and log.
"""
