"""The checks of `basefs doctor`: each module examines its subjects and says what to type.

A `Diagnosis` is a problem or a note.  `machine` examines this machine, `filesystem` one filesystem, and `peers` tries
the ports of the other nodes.  They change nothing.
"""
