"""The `basefs` command: one module a command, and the control socket through which they reach a running daemon."""
