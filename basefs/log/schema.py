"""The tables of the log, and the meaning of their columns (docs/formats.md, section 8)."""

from __future__ import annotations

#: In the directory of a filesystem.
LOG_FILE = "log.db"
CACHE_FILE = "cache.db"
#: SQLite's `user_version`: a log of another format is not opened.
FORMAT = 4

SCHEMA = """
-- Facts about the file itself: format, and identity (the hash of the root entry).
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;

-- One row per entry, in order of arrival.  All columns but `data` are copies of its fields, or derived:
--   kind       0 successor on its parent's path, 1 child: first of its path, 2 about a key, 3 annotation
--   path       static path, see `paths`
--   checksum   first bytes of the SHA-224 of `data`: the hash does not cover the signature
--   directory  hash of the mkdir under which the chain of this path lives; zero for the root's own chain
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, hash BLOB NOT NULL, parent BLOB NOT NULL, kind INTEGER NOT NULL, path INTEGER NOT NULL,
    directory BLOB NOT NULL, data BLOB NOT NULL, checksum BLOB NOT NULL
);
CREATE UNIQUE INDEX entries_hash ON entries (hash);
CREATE INDEX entries_path ON entries (path);
CREATE INDEX entries_keys ON entries (seq) WHERE kind = 2;
CREATE INDEX entries_gossip_keys ON entries (seq) WHERE kind = 3 AND substr(data, 38, 1) = x'41';

-- Blocks: `size` is the number of bytes of `data`.
CREATE TABLE blocks (seq INTEGER PRIMARY KEY, hash BLOB NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX blocks_hash ON blocks (hash);

-- Merkle tree over all paths that any entry ever named: `hash` follows from `sum`, which is of all contributions at and
-- below the path; empty if there are none, and of a path to which only one was ever added that one, a hash.
CREATE TABLE paths (
    id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, name BLOB NOT NULL, hash BLOB NOT NULL, sum BLOB NOT NULL
);
CREATE UNIQUE INDEX paths_name ON paths (parent, name);

-- The write entries that are not complete:
--   root, length  as the entry names its encoded content
--   state         0 wanted, 1 withheld, 2 spoiled (`basefs/log/missing.py`)
--   since         UNIX seconds when the entry came
CREATE TABLE waiting (
    entry BLOB PRIMARY KEY, root BLOB NOT NULL, length INTEGER NOT NULL, state INTEGER NOT NULL, since REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX waiting_root ON waiting (root);
-- The blocks below wanted writes that are not here, or are lists below which some are not:
--   block, role  hash of the block, and its meaning (`basefs/log/blocks.py`)
--   above        hash of the list or write entry that names it
--   size, exact  bytes that it has, or if not exact the most that it may have
--   here         whether it is here
-- No number comes twice: sessions remember up to where they have asked.
CREATE TABLE missing (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, block BLOB NOT NULL, role INTEGER NOT NULL, above BLOB NOT NULL,
    size INTEGER NOT NULL, exact INTEGER NOT NULL, here INTEGER NOT NULL
);
CREATE UNIQUE INDEX missing_block ON missing (block, role, above);
CREATE INDEX missing_above ON missing (above, role);

-- Keys that any accepted grant names, and where; signatures are checked against them.
CREATE TABLE granted (path INTEGER NOT NULL, fingerprint BLOB NOT NULL, public BLOB NOT NULL,
    PRIMARY KEY (fingerprint, path)) WITHOUT ROWID;

-- Links, by the path of the entry that they name: they show its content once that is complete.
CREATE TABLE links (path INTEGER NOT NULL, entry BLOB NOT NULL, PRIMARY KEY (path, entry)) WITHOUT ROWID;

-- When entries arrived here: number of the last one of a transaction, and UNIX seconds by this node's clock.
CREATE TABLE arrivals (seq INTEGER PRIMARY KEY, time REAL NOT NULL);

-- The worktree's index: a row for each path of the tree's directory, in the encoding of `basefs/fs/worktree/index.py`.
--   directory, name  of the path; "" for the top, and "" and "" for the top itself
--   inode            of what is on the disk; NULL for nothing
--   content          the write that holds the content of a file; NULL for anything else
CREATE TABLE tree (directory BLOB NOT NULL, name BLOB NOT NULL, inode INTEGER, content BLOB, data BLOB NOT NULL,
    PRIMARY KEY (directory, name)) WITHOUT ROWID;
CREATE INDEX tree_inode ON tree (inode) WHERE inode NOT NULL;
CREATE INDEX tree_content ON tree (content) WHERE content NOT NULL;
-- Facts about the worktree.
CREATE TABLE tree_facts (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
-- The writes that have become complete since the worktree was last looked at.
CREATE TABLE tree_completed (entry BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TRIGGER tree_completes AFTER DELETE ON waiting
BEGIN INSERT OR IGNORE INTO tree_completed VALUES (OLD.entry); END;

-- Whole entries that wait for one that was lost to damage: its hash, or the fingerprint of a key.
CREATE TABLE detached (hash BLOB PRIMARY KEY, needs BLOB NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX detached_needs ON detached (needs);

CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
CREATE TRIGGER blocks_no_update BEFORE UPDATE ON blocks BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
CREATE TRIGGER blocks_no_delete BEFORE DELETE ON blocks BEGIN SELECT RAISE(ABORT, 'the log only grows'); END;
"""
