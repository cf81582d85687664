"""BaseFS: one configuration tree that every machine of a cluster mounts and may write at any time."""

__version__ = "0.1.0"
