"""BaseFS: one configuration tree that every machine of a cluster mounts and may write at any time.

Packages, from the ground up: `log`, `view`, `replica`; `sync`, `gossip`, `replication`; `fs`; `daemon`; `management`.
docs/architecture.md shows how they work together, and docs/glossary.md defines the terms in backquotes.
"""

__version__ = "0.1.0"
