"""Power cuts: what a daemon wrote is recorded, and started again from what a disk may hold of it.

`trace` reads what strace(1) has written, `disk` is a disk that loses what was not synced, `history` is what programs
were promised; these three do no I/O.  `recording` runs a daemon under strace, `recovery` starts one on a disk.
"""
