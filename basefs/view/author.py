"""The author: turns what a user wants into signed entries, on top of what the view shows.

Nothing here changes anything: the drafts go through `Replica.apply` like entries from anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from basefs.errors import (
    Exists,
    InvalidName,
    IsADirectory,
    NotADirectory,
    NotEmpty,
    NotPermitted,
)
from basefs.log.contents import Contents
from basefs.log.entries import Action
from basefs.log.hashes import Fingerprint
from basefs.log.keys import SigningKey
from basefs.log.store import Store
from basefs.path import Path, display
from basefs.view.draft import Draft
from basefs.view.keyholder import KeyHolder
from basefs.view.past import Past
from basefs.view.revert import Reverter
from basefs.view.states import Kind
from basefs.view.tree import Node, Tree
from basefs.view.writer import Writer


class Author(Writer):
    """Drafts what users do.

    Attributes:
        key_holder: plans grants and revokes.
        reverter: brings back what was.
        past: tells what was.
    """

    def __init__(
        self, store: Store, contents: Contents, tree: Tree, keys: Sequence[SigningKey], clock: Callable[[], float]
    ) -> None:
        super().__init__(store, contents, tree, keys, clock)
        self.key_holder = KeyHolder(store, tree, self)
        self.reverter = Reverter(store, tree, self)
        self.past = Past(store, tree, clock)

    # -- removing and moving ------------------------------------------------------------------------------------------

    def remove(self, path: Path, *, directory: bool) -> Draft:
        """unlink or rmdir.  Raises `NotFound`, `NotADirectory`, `IsADirectory`, `NotEmpty`, `PermissionDenied`."""
        node = self.node(path)
        if not path:
            raise NotPermitted("the root directory cannot be removed")
        if directory and not node.is_directory:
            raise NotADirectory(f"{display(path)} is not a directory")
        if not directory and node.is_directory:
            raise IsADirectory(f"{display(path)} is a directory")
        shown = self._tree.find(path)
        if directory and shown is not None and shown.is_directory and self._tree.children(shown):
            raise NotEmpty(f"{display(path)} is not empty")
        draft = Draft()
        self._delete(draft, path, node)
        return draft

    def _delete(self, draft: Draft, path: Path, node: Node) -> None:
        # Every branch that is part of the (merged) path, and no other: one that nobody here saw must stay.
        for tip, authority in zip(node.outcome.tips, node.outcome.authorities, strict=True):
            key = self.signer(authority, path)
            draft.entries.append(key.sign(tip.hash, self.now(), Action.DELETE, tip.name))

    def rename(self, source: Path, target: Path, *, replace: bool = True) -> Draft:
        """Move a file, a symbolic link, or a directory with all below it, as one unit.

        Raises what POSIX rename raises: `NotFound`, `Exists` (with `replace` off), `IsADirectory`, `NotADirectory`,
        `NotEmpty`, `InvalidName` (a directory into itself), `PermissionDenied`.
        """
        draft = Draft()
        node = self.node(source)
        if not source or not target:
            raise NotPermitted("the root directory cannot be moved")
        if target[: len(source)] == source and target != source:
            raise InvalidName("a directory cannot be moved into itself")
        existing = self._child(self._directory(target[:-1]), target)
        if existing is not None and not replace:
            raise Exists(f"{display(target)} exists already")
        if source == target or (existing is not None and self._is_same_file(node, existing)):
            return draft
        if existing is not None:
            self._check_replace(node, existing, target)
        if node.is_directory:
            self._move_tree(draft, source, node, target, existing)
            return draft
        if existing is None:
            self._begin_link(draft, target, node)
        else:
            draft = self._replace(source, node, target, existing)
        self._delete(draft, source, node)
        return draft

    def _replace(self, source: Path, node: Node, target: Path, existing: Node) -> Draft:
        """Give a name that exists to another file or symbolic link; other names of either file stay what they are."""
        state = node.state
        both_files = state.kind is Kind.FILE and existing.state.kind is Kind.FILE
        has_others = len(self.names_of(target, existing)) > 1
        is_shared = len(self.names_of(source, node)) > 1
        if both_files and not has_others and not is_shared:
            assert state.content is not None
            # A new content of the same file: a small delta, and its history goes on.
            content = self._contents.open(state.content)
            return self.write(target, content, mode=state.mode, owner=state.owner, mtime=state.mtime)
        draft = Draft()
        key = self.signer(existing.authority, target)
        parent = existing.outcome.tips[0].hash
        if has_others and existing.state.link is None:
            # The other names follow this one, so its file must end before another one begins here.
            draft.entries.append(key.sign(parent, self.now(), Action.DELETE, target[-1]))
            parent = draft.entries[-1].hash
        if both_files and not is_shared:
            assert state.content is not None
            content = self._contents.open(state.content)
            write = self._write(draft, key, parent, target[-1], content, None, state.mtime)
            self._set_mode(draft, write, state.mode, state.owner, existing.authority, target)
        else:
            self._link(draft, key, parent, target[-1], node)
        return draft

    @staticmethod
    def _is_same_file(left: Node, right: Node) -> bool:
        return left.state.origin is not None and left.state.origin == right.state.origin

    def _check_replace(self, node: Node, existing: Node, target: Path) -> None:
        if existing.is_directory and not node.is_directory:
            raise IsADirectory(f"{display(target)} is a directory")
        if node.is_directory and not existing.is_directory:
            raise NotADirectory(f"{display(target)} is not a directory")
        if existing.is_directory and self._tree.children(existing):
            raise NotEmpty(f"{display(target)} is not empty")

    def _move_tree(self, draft: Draft, source: Path, node: Node, target: Path, existing: Node | None) -> None:
        if existing is None:
            authority = self._directory(target[:-1]).authority
            made = self._begin(draft, target, Action.MKDIR, b"", mtime=node.state.mtime)
            self._set_mode(draft, made, node.state.mode, node.state.owner, authority, target)
            home = made.hash
        else:
            authority, home = existing.authority, existing.outcome.directories[0]
            draft.entries.extend(
                self.set_attributes(
                    target, mode=node.state.mode, owner=node.state.owner, mtime=node.state.mtime
                ).entries
            )
        key = self.signer(authority, target)
        moved: list[tuple[Path, Node]] = []
        todo = [(source, node, home)]
        while todo:
            path, directory, home = todo.pop()
            for name, child in self._tree.children(directory).items():
                moved.append(((*path, name), child))
                parent = home if existing is None or directory is not node else self._slot(existing, (*target, name))
                if not child.is_directory:
                    self._link(draft, key, parent, name, child)
                    continue
                made = key.sign(parent, child.state.mtime, Action.MKDIR, name)
                draft.entries.append(made)
                self._set_mode(draft, made, child.state.mode, child.state.owner, authority, target)
                todo.append(((*path, name), child, made.hash))
        for path, child in reversed(moved):
            self._delete(draft, path, child)
        self._delete(draft, source, node)

    # -- keys and history ---------------------------------------------------------------------------------------------

    def grant(self, path: Path, key_name: bytes, public: bytes) -> Draft:
        """`KeyHolder.grant`, without what else its plan tells."""
        return self.key_holder.grant(path, key_name, public).draft

    def revoke(self, path: Path, key_name: bytes, fingerprint: Fingerprint, *, discard: bool = False) -> Draft:
        """`KeyHolder.revoke`, without what else its plan tells."""
        return self.key_holder.revoke(path, key_name, fingerprint, discard=discard).draft
