"""Staging: the changes of applications that are not published yet, and their survival of a crash.

The `working set` holds each `inode` that is open or changed, and the `overlay` of names.  The `journal` makes closed
files durable; a `spool` holds the bytes of a large one.  A `scratch name` never leaves the node, and a `vacancy` is a
removed name that waits for its successor.
"""
