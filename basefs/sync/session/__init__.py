"""One `session` without I/O and without a clock: bytes and ticks in; bytes, events and work for the log out.

`protocol` has the surface, `states` the transitions as data.  `compare` finds differences of the `Merkle tree`,
`requests` and the `request table` (`inflight`) ask for them, `responder` answers, `receiver` orders what arrives on its
way into the log, `push` sends changes while the session stays open, and `views` compares what both nodes show.
"""
