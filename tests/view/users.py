"""Users at nodes, whose changes are checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from basefs.log.keys import SigningKey
from basefs.replica.replica import Applied, Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.states import Kind
from tests.support.helpers import (
    ALICE,
    ROOT_KEY,
    Node,
    Shown,
    copy_replica,
    genesis,
    make_replica,
    path,
    tree_of,
)
from tests.support.names import make_link, rename


class User:
    """A user at a node; each change is compared with a rebuild and with a replica that starts from the log."""

    def __init__(self, directory: Path, *keys: SigningKey) -> None:
        self.directory = directory
        self.node = Node(make_replica(directory / "node", keys, born=[]))
        self.node.receive(genesis((ROOT_KEY, ALICE)), [])
        self.replica: Replica = self.node.replica
        self._copies = 0

    def does(self, make: Callable[[Author], Draft]) -> Applied:
        """Commit."""
        applied = self.replica.commit(make)
        assert self.replica.check_view() == []
        return applied

    def sees(self) -> dict[str, Shown]:
        """The tree, with paths as text."""
        self._copies += 1
        copy = copy_replica(self.replica, self.directory / f"copy{self._copies}")
        tree = tree_of(self.replica)
        assert tree_of(copy) == tree
        copy.close()
        return {"/" + b"/".join(names).decode(): shown for names, shown in tree.items()}

    def writes(self, text: str, content: bytes) -> Applied:
        """Create or rewrite a file."""
        return self.does(lambda author: author.write(path(text), content))

    def makes(self, *texts: str) -> None:
        """mkdir."""
        for text in texts:
            self.does(lambda author, text=text: author.make_directory(path(text)))  # type: ignore[misc]

    def moves(self, source: str, target: str) -> Applied:
        """mv."""
        return self.does(lambda author: rename(author, path(source), path(target)))

    def links(self, name: str, target: str) -> Applied:
        """ln."""
        return self.does(lambda author: make_link(author, path(name), path(target)))

    def removes(self, text: str) -> Applied:
        """unlink or rmdir."""
        is_directory = self.replica.attributes(path(text)).kind is Kind.DIRECTORY
        return self.does(lambda author: author.remove(path(text), directory=is_directory))
