"""The log: signed entries and the blocks of their contents, append-only, in one file (paper, section 3.0.1).

Every `entry` and `block` passes through `Intake`, which accepts it, lets it wait as an `orphan`, or refuses it.  The
`Store` keeps them, with every `derived` table, in SQLite.  A `content` is encoded by a `ContentCodec` and cut into
blocks, often as a delta whose `lineage` ends at a `keyframe`.  `check`, `rebuild` and `repair` handle damage, and
`archive` reads and writes exported files.  `LogState` is the interface for `sync`.  docs/log.md has the details.
Imports errors, path and durable.
"""
