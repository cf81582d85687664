"""What `basefs doctor` looks at: each module knows one thing that can be wrong with a node, and what to do about it.

    finding     what was found, and what to type
    fuse, serf, ports, clock, home, mounts, log   what can be seen on this machine
    peers       what can be seen of the others

They look and change nothing, and take from others what they cannot see themselves.
"""
