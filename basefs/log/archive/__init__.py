"""Archives: a filesystem or a path of it, with all its history, in one file (`docs/formats.md`, section 10)."""
