"""The filesystem: real files that are kept equal to the view, and what becomes of their changes (docs/fs.md).

`worktree` compares the files with the log, in both directions, and `Filesystem` puts its parts together for the
daemon.  `server` is the process that shows them as a mount, and `events` runs each `handler` and writes the change
stream.

Imports errors, path, durable, notify, tasks, log, view and replica.
"""
