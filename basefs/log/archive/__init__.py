"""Archives: a filesystem, or a path of it, as one file with all its history (docs/formats.md, section 10).

Writing reads one state of the `log` file, selects entries and blocks, and puts each `entry` behind its `parent`.
Reading passes records to the log in batches, like those of a `peer`.  The checksum only shows that the file is whole.
"""
