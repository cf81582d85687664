"""Publishing: from the working set to entries of the log.

`timing` decides when, after the `quiet window`.  The `plan` is the difference between `working set` and `view`, a
`draft` its entries on the `observed version`; afterwards the published changes leave the `overlay`.  One thread, the
`publisher`, does all of it.
"""
