"""The replica: the log and the view of one filesystem on one node, with one writer and many readers (paper, section 4).

`Replica` commits local changes and adds entries and blocks of peers, each in one transaction under one lock.  It
delivers an `Applied` for each commit through the `feed`, in order and outside of the lock.  Readers use a `snapshot` or
cached `attributes` and do not wait for the writer.  `view_hash` hashes what is shown.  `bootstrap` makes the first
entries of a filesystem.

Imports errors, path, durable, log and view.
"""
