"""The filesystem: what applications see of a replica, and what becomes of their changes (docs/fs.md).

`Filesystem` has the operations in terms of paths and inodes.  `fuse` connects them to the kernel, `staging` keeps
unpublished changes, `publish` turns them into entries, and `events` runs each `handler` and writes the change stream.

Imports errors, path, durable, tasks, log, view and replica.
"""
