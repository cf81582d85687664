"""The resources of a running filesystem: its daemon and its agent, once a second (paper, section 5: the profiler).

`usage` reads one process at one moment.  `rates` compares two readings, without I/O.
"""
