"""The checks of `basefs doctor`: each module examines one subject and says what to type.

A `Diagnosis` is a problem or a note.  `fuse`, `serf`, `ports`, `clock`, `home`, `mounts` and `log` examine this
machine, `peers` the others.  They change nothing.
"""
