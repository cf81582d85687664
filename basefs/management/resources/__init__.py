"""What a running filesystem uses: its daemon and its Serf agent, read once a second (paper, section 5: the profiler).

usage   one process at one moment
rates   what two readings say about the time between them; no I/O
"""
