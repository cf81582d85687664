"""What users do: on few paths, so that they conflict."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from basefs.errors import BaseFSError, NoSpace, NotFound
from basefs.log.entries import Action
from basefs.log.hashes import EntryHash
from basefs.log.keys import SigningKey
from basefs.path import Path, display
from basefs.view.history import Survey
from tests.simulation.node import Node
from tests.support.helpers import noise
from tests.support.names import make_link, make_symlink, rename

DIRECTORIES: list[Path] = [(b"d",), (b"d", b"e"), (b"g",)]
FILES: list[Path] = [(b"a",), (b"b",), (b"d", b"a"), (b"d", b"b"), (b"d", b"e", b"a"), (b"g", b"a")]
#: Bytes of contents: in an entry, in a few gossip events, in a push, in some blocks, in pieces from several peers.
SIZES = (10, 60, 900, 12_000, 150_000, 4_000_000)

#: What is done by a command, where all else is done on a mount.
COMMANDS = ("grant", "revoke", "revert", "accept")

Change = Callable[[Any], Any]


class User:
    """Somebody at one node."""

    def __init__(self, node: Node, keys: Sequence[SigningKey], rng: random.Random, weights: dict[str, float]) -> None:
        """`keys`: of all nodes; `weights`: how often somebody does what."""
        self._node = node
        self._keys = keys
        self._rng = rng
        self._kinds = list(weights)
        self._weights = list(weights.values())
        self._count = 0
        self._content_now = b""
        #: Writes of this user, by hash, with what was written.
        self.written: dict[EntryHash, bytes] = {}
        #: Whether this is the node with the root key, and the only one.
        self._is_root = node.keys[0] is keys[0] and sum(key is keys[0] for key in keys) == 1
        #: Whether what is to be renamed is there, and the directory in which its new name is.
        self._is_there = False
        #: Refusals that must not be.
        self.found: list[str] = []

    def act(self, trace: Callable[[str, str], None]) -> None:
        """Do something, which may be refused."""
        kind = self._rng.choices(self._kinds, self._weights)[0]
        text, change = getattr(self, f"_{kind}")()
        try:
            applied = self._node.act(change)
        except BaseFSError as error:
            trace(self._node.host, f"user: {text}: {error}")
            if kind == "expel" and self._is_root and not isinstance(error, NoSpace):
                self.found.append(f"{self._node.host} with the root key cannot {text}: {error}")
            elif kind == "rename" and self._is_there and isinstance(error, NotFound):
                self.found.append(f"{self._node.host} cannot {text}: {error}")
        else:
            trace(self._node.host, f"user: {text}")
            writes = [entry.hash for entry in applied.entries if entry.action is Action.WRITE]
            if kind in ("write", "large") and len(writes) == 1:
                self.written[writes[0]] = self._content_now

    def _content(self, most: int) -> bytes:
        self._count += 1
        size = self._rng.choices(SIZES[:most], [8, 8, 4, 2, 1, 0.1][:most])[0]
        self._content_now = noise(self._rng.randrange(1 << 40), size)
        return self._content_now

    def _write(self) -> tuple[str, Change]:
        path, content = self._rng.choice(FILES), self._content(4)
        return f"write {display(path)} {len(content)}", lambda author: author.write(path, content)

    def _large(self) -> tuple[str, Change]:
        path, content = self._rng.choice(FILES), self._content(6)
        return f"write {display(path)} {len(content)}", lambda author: author.write(path, content)

    def _mkdir(self) -> tuple[str, Change]:
        path = self._rng.choice(DIRECTORIES)
        return f"mkdir {display(path)}", lambda author: author.make_directory(path)

    def _remove(self) -> tuple[str, Change]:
        path = self._rng.choice(FILES + DIRECTORIES)
        return f"remove {display(path)}", lambda author: author.remove(path, directory=path in DIRECTORIES)

    def _rename(self) -> tuple[str, Change]:
        source, target = self._rng.sample(FILES + DIRECTORIES, 2)
        live = {path for path, _ in self._node.replica.live_paths()}
        self._is_there = {source, target[:-1]} <= live
        return f"rename {display(source)} {display(target)}", lambda author: rename(author, source, target)

    def _link(self) -> tuple[str, Change]:
        path, target = self._rng.sample(FILES, 2)
        return f"link {display(path)} {display(target)}", lambda author: make_link(author, path, target)

    def _mode(self) -> tuple[str, Change]:
        path, mode = self._rng.choice(FILES + DIRECTORIES), self._rng.choice((0o600, 0o644, 0o755))
        return f"mode {display(path)} {mode:o}", lambda author: author.set_attributes(path, mode=mode)

    def _grant(self) -> tuple[str, Change]:
        path, number = self._rng.choice([(), *DIRECTORIES]), self._rng.randrange(len(self._keys))
        key = self._keys[number]
        return f"grant {display(path)} {number}", lambda author: author.grant(path, b"k%d" % number, key.public)

    def _revoke(self) -> tuple[str, Change]:
        path, number = self._rng.choice([(), *DIRECTORIES]), self._rng.randrange(1, len(self._keys))
        key, discard = self._keys[number], self._rng.random() < 0.3
        return (
            f"revoke {display(path)} {number} {discard}",
            lambda author: author.revoke(path, b"k%d" % number, key.fingerprint, discard=discard),
        )

    def _revert(self) -> tuple[str, Change]:
        path, chance = self._rng.choice(FILES + DIRECTORIES), self._rng.random()

        def change(author: Any) -> Any:
            revisions = self._node.replica.examine(path, Survey.revisions)
            return author.reverter.path(path, revisions[int(chance * len(revisions))].entry.hash)

        return f"revert {display(path)} {chance:.3f}", change

    def _accept(self) -> tuple[str, Change]:
        path = self._rng.choice(FILES)
        return f"accept {display(path)}", lambda author: author.reverter.accept(path)

    # In some scenes alone

    def _symlink(self) -> tuple[str, Change]:
        path, target = self._rng.choice(FILES + DIRECTORIES), self._rng.choice((b"a", b"../b", b"/nowhere"))
        return f"symlink {display(path)}", lambda author: make_symlink(author, path, target, replace=True)

    def _expel(self) -> tuple[str, Change]:
        number = self._rng.randrange(1, len(self._keys))
        key, discard = self._keys[number], self._rng.random() < 0.3

        def change(author: Any) -> Any:
            def hanging() -> list[Path]:
                valid = (one for one in author.past.grants() if one.standing == "valid")
                return sorted({one.path for one in valid if one.fingerprint == key.fingerprint})

            for path in hanging():
                # Others may have fallen with an earlier one.
                if path in hanging():
                    yield author.revoke(path, b"k%d" % number, key.fingerprint, discard=discard)

        return f"expel {number} {discard}", change

    def _readmit(self) -> tuple[str, Change]:
        number, writes = self._rng.randrange(1, len(self._keys)), self._rng.random() < 0.5
        key, name = self._keys[number], b"k%d" % number
        return (
            f"readmit {number} {writes}",
            lambda author: (author.grant if writes else author.admit)((), name, key.public),
        )
