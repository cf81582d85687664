"""The mount: libfuse on one side, the filesystem's operations on the other.

`binding` calls libfuse, `operations` translates paths, attributes and errors, and `errno` maps each error.  The
`kernel` module invalidates the `kernel cache`; the `mirror` repeats remote changes through the mount, so that inotify
reports them, and uses `reach` to stay inside of it.
"""
