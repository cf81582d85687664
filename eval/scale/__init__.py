"""Clusters of up to ten thousand nodes in one process and in virtual time: `cluster` runs them, `measure` asks."""
