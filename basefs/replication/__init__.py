"""Replication: which changes go where, when, and by which way.

`propagation` connects replica, sync and gossip, and takes gossiped entries into the log in batches.  A local or
received change is sent by `push` over open sessions; `announcing` adds `gossip` or an `announcement` where no `peer`
confirms it.  A `pull` fetches the rest: `scheduler` decides on it.

Imports errors, path, tasks, log, replica, sync and gossip.
"""
