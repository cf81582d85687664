"""What users do to names, drafted as a node publishes it, for tests that have no mount."""

from __future__ import annotations

from basefs.errors import Exists, InvalidName, IsADirectory, NotADirectory, NotEmpty, NotPermitted
from basefs.log.keys import SigningKey
from basefs.path import Path, check_length, check_name
from basefs.view.author import Author
from basefs.view.draft import Draft, End
from basefs.view.states import ABSENT, FILE_MODE, LINK_MODE, Kind, State
from basefs.view.tree import Node


def _opening(author: Author, path: Path) -> tuple[SigningKey, End]:
    """Who signs the first entry of a new path, and what that follows.  Raises where there can be none."""
    if not path:
        raise Exists("/ exists already")
    check_name(path[-1])
    check_length(path)
    directory = author.tree.node(path[:-1])
    if not directory.is_directory:
        raise NotADirectory("it would be in a file")
    slot = author.slot(path)
    if slot is None:
        raise Exists("it exists already")
    return author.signer.key_for(directory.authority, path), End(path[-1], slot, ABSENT)


def _end(path: Path, node: Node) -> End:
    return End(path[-1], node.outcome.tips[0].hash, node.state)


def make(author: Author, path: Path, wanted: State, *, timed: bool = False) -> Draft:
    """mknod, or symlink."""
    draft = Draft()
    key, end = _opening(author, path)
    author.make(draft, key, end, wanted, timed=timed)
    return draft


def make_node(author: Author, path: Path, kind: Kind, rdev: int = 0, *, mode: int = FILE_MODE) -> Draft:
    """mknod."""
    return make(author, path, State(kind, mode, rdev=rdev))


def make_symlink(
    author: Author, path: Path, target: bytes, *, mtime: int | None = None, replace: bool = False
) -> Draft:
    """symlink; with `replace` also in the place of a file or another one, as mv leaves it."""
    wanted = State(Kind.SYMLINK, LINK_MODE, mtime=mtime or 0, target=target)
    node = author.tree.find(path) if replace else None
    if node is None or node.is_directory:
        return make(author, path, wanted, timed=mtime is not None)
    draft = Draft()
    if (node.state.kind, node.state.target) != (Kind.SYMLINK, target):
        author.make(draft, author.signer.key_for(node.authority, path), _end(path, node), wanted, timed=False)
    return draft


def make_link(author: Author, path: Path, target: Path) -> Draft:
    """link."""
    node = author.tree.node(target)
    if node.is_directory:
        raise NotPermitted("it is a directory")
    draft = Draft()
    key, end = _opening(author, path)
    author.link(draft, key, end, _end(target, node))
    return draft


def rename(author: Author, source: Path, target: Path) -> Draft:
    """rename: new paths, and removals of the former ones."""
    draft = Draft()
    tree, node = author.tree, author.tree.node(source)
    if not source or not target:
        raise NotPermitted("it is the root directory")
    if target[: len(source)] == source and target != source:
        raise InvalidName("it would be in itself")
    existing = tree.find(target)
    if source == target:
        return draft
    if existing is None:
        key, end = _opening(author, target)
    else:
        _check_replaced(author, node, existing)
        key, end = author.signer.key_for(existing.authority, target), _end(target, existing)
    moved = list(tree.walk(source))
    made = {target: end}
    for path, child in moved:
        new = (*target, *path[len(source) :])
        check_length(new)
        if new != target:
            origin = made[new[:-1]].state.origin
            assert origin is not None
            made[new] = End(new[-1], author.slot(new) or origin, ABSENT)
        if not child.is_directory:
            author.link(draft, key, made[new], _end(path, child))
        elif made[new].state.kind is Kind.ABSENT:
            made[new] = author.make(draft, key, made[new], child.state)
        else:
            made[new] = author.settle(draft, key, made[new], child.state)
    for path, child in reversed(moved):
        _remove(author, draft, path, child)
    return draft


def _remove(author: Author, draft: Draft, path: Path, node: Node) -> None:
    for authority in node.outcome.authorities:
        author.signer.key_for(authority, path)
    for tip, authority in author.tree.live_ends(path).items():
        for key in author.signer.valid(authority)[:1]:
            author.delete(draft, key, End(path[-1], tip, node.state))


def _check_replaced(author: Author, node: Node, existing: Node) -> None:
    if existing.is_directory and not node.is_directory:
        raise IsADirectory("it would replace a directory")
    if node.is_directory and not existing.is_directory:
        raise NotADirectory("it would replace a file")
    if existing.is_directory and author.tree.children(existing):
        raise NotEmpty("it would replace a directory that is not empty")
