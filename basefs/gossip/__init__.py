"""Gossip over Serf: the event codec, the RPC protocol and client, the agent's subprocess, and the service of them all.

Import ladder, lower ones know nothing of higher ones: `events`, `bucket`, `rpc`; `members`, `outbox`, `subscription`,
`config`, `connect`; `peers`, `client`; `agent`, `joiner`; `supervisor`; `service`.  The codecs (`events`, `rpc`), the
`outbox` and the `bucket` have neither I/O nor a clock.
"""
