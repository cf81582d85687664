"""The connections of sync: asyncio transports, the server, and the sessions of a node.

`transport` moves bytes between a `session` and a TCP connection.  `server` accepts sessions, `service` starts them,
and `neighbours` keeps each `push session` of the `NeighbourSet` open.  The `uplink` gives turns on narrow links, and
`peers` remembers contacts, traffic and bans.
"""
