"""The mount server: a process that shows the worktree as a filesystem and reports changes to the daemon (docs/fs.md).

It imports errors and the modules of `fs` that both processes share: disk, jobs and channel.
"""
