"""Power cuts: what a daemon and programs wrote is recorded, and a daemon starts on what a disk may hold of it.

`trace` reads what strace(1) has written, and `disk` is a disk that loses what was not synced; these two do no I/O.
`work` is what is recorded, by `recording`; `recovery` starts on what is left.
"""
