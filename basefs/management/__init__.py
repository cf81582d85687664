"""The `basefs` command: one module for each subcommand.

`main` lists and loads them.  Each parses its options, calls the `api` of the daemon, and prints through
`output`: tables, JSON, one line for an error.  `doctor` diagnoses a node, and `resources` shows what it uses.

Imports errors, path, durable, tasks and daemon.
"""
