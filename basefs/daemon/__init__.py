"""The daemon: one process that serves one filesystem on one node.

`main` is the composition root, `loop` the part in the event loop, `network` gossip and sync, `config` and `settings`
the configuration.  `api` answers commands on the `control socket`, `metrics` serves Prometheus, and `serf` finds or
installs the Serf program.  `launch` starts a daemon; `lock` makes it the only user of its log.

Imports errors, path, durable, notify, tasks, log, view, replica, sync, gossip, fs and replication.
"""
