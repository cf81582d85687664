"""The API of a node for commands, whether a daemon runs or not.

`messages` has a class for each request and each answer.  `ControlServer` answers on the `control socket`;
`FilesystemClient` talks to it, or opens the log itself if no `daemon` runs.  `creation` makes or fetches a filesystem,
`archives` exports and imports one, and `shutdown` ends a daemon.  `services`, `history` and `keys` answer requests.
No command uses another door.
"""
