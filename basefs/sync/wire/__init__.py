"""The wire of sync: bytes, lines and messages.  No I/O, no clock, no policy.

`messages` has one frozen class for each kind of `message`, `codec` their encoding, strict in both directions, and
`limits` every limit with its reason.  docs/sync-protocol.md has the grammar.
"""
