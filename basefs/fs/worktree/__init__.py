"""The `worktree`: a real directory that is kept equal to the view, in both directions (docs/fs.md).

The `index` has what each path was last equal to.  A `scan` finds what differs, the `publisher` turns it into entries,
and the `receiver` brings what others have written.
"""
