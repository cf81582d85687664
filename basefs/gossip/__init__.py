"""Gossip over Serf: the event codec, the RPC protocol and client, the agent's subprocess, and the service of them all.

`Gossip` sends and receives events of at most 512 bytes and lists each `member`.  The `supervisor` keeps the `agent`
alive, the `joiner` finds other nodes, and `members` remembers their addresses.  The codecs (`events`, `rpc`) and
`outgoing`, the queue with its pace, have neither I/O nor a clock.  Lower modules know nothing of higher ones: `events`,
`rpc`; `client`; `agent`; `supervisor`; `service`.

Imports errors, durable and tasks.
"""
