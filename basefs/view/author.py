"""The author: turns what a user wants into signed entries, on top of what the view shows.

Nothing here changes anything: the drafts go through `Replica.commit` into the log.
"""

from __future__ import annotations


from basefs.errors import (
    Exists,
    InvalidName,
    IsADirectory,
    NameTooLong,
    NotADirectory,
    NotEmpty,
    NotPermitted,
    StoreError,
    TooLarge,
)
from basefs.log.blocks import MAX_CONTENT_BYTES
from basefs.log.content import BytesContent, Content
from basefs.log.contents import Contents
from basefs.log.encoder import Encoder
from basefs.log.entries import MAX_CONTENT, Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.keys import SigningKey
from basefs.log.store import Store
from basefs.path import Path, check_name, display
from basefs.view.draft import Draft
from basefs.view.keyholder import KeyHolder
from basefs.view.past import Past
from basefs.view.permissions import Authority
from basefs.view.revert import Reverter
from basefs.view.signer import Signer
from basefs.view.states import ABSENT, DIRECTORY_MODE, MODE_MASK, Kind, Owner, encode_mode, step
from basefs.view.tree import Node, Tree


class Author:
    """Drafts what users do, for one commit.

    Attributes:
        key_holder: plans grants and revokes.
        reverter: brings back what was.
        past: what was.
    """

    def __init__(self, store: Store, contents: Contents, tree: Tree, signer: Signer, encoder: Encoder) -> None:
        """`encoder`: the contents of the commit that drafts."""
        self.store = self._store = store
        self._contents = contents
        self.tree = self._tree = tree
        self.signer = self._signer = signer
        self.encoder = self._encoder = encoder
        self.key_holder = KeyHolder(store, tree, signer)
        self.reverter = Reverter(store, tree, signer)
        self.past = Past(store, tree, signer)

    # -- looking up ---------------------------------------------------------------------------------------------------

    def node(self, path: Path) -> Node:
        """What is at a path, in the version that the change was made on.  Raises as `Tree.node`."""
        return self._tree.node(path)

    def _child(self, directory: Node, path: Path) -> Node | None:
        """What is at a path in this directory, in the version that the change was made on; `None` if nothing."""
        return self._tree.children(directory).get(path[-1])

    def _directory(self, path: Path) -> Node:
        node = self.node(path)
        if not node.is_directory:
            raise NotADirectory(f"{display(path)} is not a directory")
        return node

    def _check_new(self, path: Path) -> Node:
        """The directory that will hold a new name.  Raises where the name exists or cannot be."""
        if not path:
            raise Exists("/ exists already")
        check_name(path[-1])
        directory = self._directory(path[:-1])
        if self._child(directory, path) is not None:
            raise Exists(f"{display(path)} exists already")
        return directory

    # -- making paths -------------------------------------------------------------------------------------------------

    def check_create(self, path: Path) -> None:
        """Raise what creating a path would raise."""
        directory = self._check_new(path)
        self._signer.key_for(directory.authority, path)

    def make_directory(
        self, path: Path, *, mode: int = DIRECTORY_MODE, owner: Owner | None = None, mtime: int | None = None
    ) -> Draft:
        """A new directory.  Raises `Exists`, `NotFound`, `NotADirectory`, `PermissionDenied`, or a bad name's error."""
        draft = Draft()
        self._set_mode(draft, *self._begin(draft, path, Action.MKDIR, b"", mtime=mtime), mode, owner)
        return draft

    def make_symlink(self, path: Path, target: bytes, *, mtime: int | None = None, replace: bool = False) -> Draft:
        """A new symbolic link, with `replace` also in the place of a file or another one.

        Raises as `make_directory`, and `NameTooLong` for a target over 4095 bytes.
        """
        if not 0 < len(target) <= MAX_CONTENT:
            raise NameTooLong(f"the target of a symbolic link has 1 to {MAX_CONTENT} bytes")
        draft = Draft()
        node = self._child(self._directory(path[:-1]), path) if replace and path else None
        if node is not None and not node.is_directory:
            if node.state.kind is not Kind.SYMLINK or node.state.target != target:
                key = self._signer.key_for(node.authority, path)
                tip, now = node.outcome.tips[0], self._signer.now()
                draft.entries.append(key.sign(tip.hash, now, Action.SLINK, path[-1], target, Extensions(mtime=mtime)))
            return draft
        self._begin(draft, path, Action.SLINK, target, mtime=mtime)
        return draft

    def make_link(self, path: Path, target: Path) -> Draft:
        """A hard link: another path that begins as a file is.

        Raises as `make_directory`, and `NotPermitted` for directories.
        """
        node = self.node(target)
        if node.is_directory:
            raise NotPermitted("a directory cannot have a second name")
        draft = Draft()
        _, parent = self._opening(path)
        self._link(draft, self._directory(path[:-1]).authority, parent, path, node)
        return draft

    def _link(self, draft: Draft, authority: Authority, parent: EntryHash, path: Path, node: Node) -> None:
        """Another path that begins as the file at `node` is."""
        key = self._signer.key_for(authority, path)
        link = key.sign(parent, self._signer.now(), Action.LINK, path[-1], node.outcome.tips[0].hash)
        draft.entries.append(link)

    def _begin(
        self, draft: Draft, path: Path, action: Action, content: bytes, *, mtime: int | None = None
    ) -> tuple[SigningKey, Entry]:
        """Draft the first entry of a new path; returns its key, too."""
        key, parent = self._opening(path)
        entry = key.sign(parent, self._signer.now(), action, path[-1], content, Extensions(mtime=mtime))
        draft.entries.append(entry)
        return key, entry

    def _opening(self, path: Path) -> tuple[SigningKey, EntryHash]:
        """The key that signs the first entry of a new path, and what that hangs on.  Raises where there can be none."""
        directory = self._check_new(path)
        return self._signer.key_for(directory.authority, path), self._slot(directory, path)

    def _slot(self, directory: Node, path: Path) -> EntryHash:
        """What the first entry of a new path hangs on: the delete of what was there before, or the directory."""
        before = self._tree.absent(directory, path[-1])
        return directory.outcome.directories[0] if before is None else before.tips[0].hash

    # -- files --------------------------------------------------------------------------------------------------------

    def write(
        self,
        path: Path,
        content: bytes | Content,
        *,
        mode: int | None = None,
        owner: Owner | None = None,
        mtime: int | None = None,
        written: int | None = None,
    ) -> Draft:
        """Create a file, or give it a new content; a file that stays the same costs nothing.

        Args:
            path: the path.
            content: all of it; the key of a large one is known, since that takes as long as to read it.
            mode: permission bits; `None` keeps them, or gives a new file 0644.
            owner: names of owner and group; `None` keeps them, or leaves a new file to the mounting user.
            mtime: nanoseconds since 1970, also if the content stays the same; `None` is `written`.
            written: nanoseconds since 1970, when the content was written; `None` is now.

        Raises as `make_directory`, and `IsADirectory`, `TooLarge`.
        """
        content = BytesContent(content) if isinstance(content, bytes) else content
        if content.size > MAX_CONTENT_BYTES:
            raise TooLarge(f"a file has up to {MAX_CONTENT_BYTES} bytes")
        draft = Draft()
        stamp = written if mtime is None else mtime
        node = self._child(self._directory(path[:-1]), path) if path else self._tree.root
        if node is None:
            key, parent = self._opening(path)
            self._set_mode(draft, key, self._write(draft, key, parent, path[-1], content, None, stamp), mode, owner)
            return draft
        if node.is_directory:
            raise IsADirectory(f"{display(path)} is a directory")
        key = self._signer.key_for(node.authority, path)
        tip = node.outcome.tips[0]
        state = node.state
        base = state.content if state.kind is Kind.FILE else None
        if base is not None and self._encoder.is_same(content, base):
            return self.set_attributes(path, mode=mode, owner=owner, mtime=mtime)
        write = self._write(draft, key, tip.hash, path[-1], content, self._contents.lineages.source(tip.hash), stamp)
        if state.kind is Kind.FILE:
            kept = state.mode if mode is None else mode & MODE_MASK, state.owner if owner is None else owner
            draft.follow_with_mode(key, write, step(state, write, complete=True), *kept)
        else:
            self._set_mode(draft, key, write, mode, owner)
        return draft

    def source(self, tip: EntryHash) -> EntryHash | None:
        """The write whose content a path has at an entry."""
        try:
            return self._contents.lineages.source(tip)
        except StoreError:
            return None

    def arrived(self, entry: EntryHash) -> int:
        """The number of an entry in the order of arrival."""
        return self._store.sequence(entry) or 0

    def directory_of(self, entry: EntryHash) -> EntryHash | None:
        """The mkdir under which an entry stands."""
        placed = self._store.get(entry)
        return None if placed is None else placed.directory

    def live_ends(self, path: Path) -> list[EntryHash]:
        """The ends of all branches of a path at which something is, whichever wins; none where there is one branch."""
        above, node = self._tree.find(path[:-1]), self._tree.find(path)
        if above is None or node is None:
            return []
        entries = self._store.entries_at(node.path_id, above.outcome.directories)
        parents = {one.entry.parent for one in entries if one.kind.is_state}
        ends = [one for one in entries if one.kind.is_state and one.entry.hash not in parents]
        if len(ends) < 2:
            return []
        _, walk = self._tree.resolver.survey(entries, above.outcome.as_directory(len(path)))
        return [
            one.entry.hash
            for one in ends
            if (state := walk.states.get(one.entry.hash)) is not None and state.kind is not Kind.ABSENT
        ]

    def write_entry(
        self,
        draft: Draft,
        key: SigningKey,
        parent: EntryHash,
        name: bytes,
        content: Content,
        base: EntryHash | None,
        mtime: int | None,
    ) -> Entry:
        """Draft a write."""
        return self._write(draft, key, parent, name, content, base, mtime)

    def _write(
        self,
        draft: Draft,
        key: SigningKey,
        parent: EntryHash,
        name: bytes,
        content: Content,
        base: EntryHash | None,
        mtime: int | None,
    ) -> Entry:
        found = self._encoder.encoded(content, base)
        named = b"" if found.encoded is None else found.encoded.encode()
        entry = key.sign(parent, self._signer.now(), Action.WRITE, name, named, Extensions(content.size, mtime))
        draft.entries.append(entry)
        draft.blocks.extend(found.blocks)
        draft.large |= found.is_stored
        draft.contents[entry.hash] = content
        return entry

    # -- attributes ---------------------------------------------------------------------------------------------------

    def set_attributes(
        self, path: Path, *, mode: int | None = None, owner: Owner | None = None, mtime: int | None = None
    ) -> Draft:
        """chmod, chown and utimens: a mode entry, without `mtime` at the same time.  None where nothing changes.

        Raises `NotFound`, `NotADirectory`, `PermissionDenied`.
        """
        draft = Draft()
        node = self.node(path)
        state = node.state
        bits = state.mode if mode is None or state.kind is Kind.SYMLINK else mode & MODE_MASK
        kept = state.owner if owner is None else owner
        # A directory shows when its names last changed; setting its time ends that, whatever the log says.
        same_time = mtime is None or (mtime == state.mtime and not node.touched)
        if (bits, kept) == (state.mode, state.owner) and same_time:
            return draft
        key = self._signer.key_for(node.outcome.authorities[0], path)
        tip, now = node.outcome.tips[0], self._signer.now()
        content, extensions = encode_mode(bits, kept), Extensions(mtime=mtime)
        draft.entries.append(key.sign(tip.hash, now, Action.MODE, tip.name, content, extensions))
        return draft

    @staticmethod
    def _set_mode(draft: Draft, key: SigningKey, made: Entry, mode: int | None, owner: Owner | None) -> None:
        """Follow the first entry of a file or directory with a mode entry, where the default is not what is wanted."""
        shown = step(ABSENT, made, complete=True)
        draft.follow_with_mode(key, made, shown, shown.mode if mode is None else mode & MODE_MASK, owner)

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
            key = self._signer.key_for(authority, path)
            draft.entries.append(key.sign(tip.hash, self._signer.now(), Action.DELETE, tip.name))

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
        if source == target:
            return draft
        if existing is not None:
            self._check_replace(node, existing, target)
        if node.is_directory:
            self._move_tree(draft, source, node, target, existing)
            return draft
        parent = self._opening(target)[1] if existing is None else existing.outcome.tips[0].hash
        authority = self._directory(target[:-1]).authority if existing is None else existing.authority
        self._link(draft, authority, parent, target, node)
        self._delete(draft, source, node)
        return draft

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
            key, made = self._begin(draft, target, Action.MKDIR, b"", mtime=node.state.mtime)
            self._set_mode(draft, key, made, node.state.mode, node.state.owner)
            home = made.hash
        else:
            authority, home = existing.authority, existing.outcome.directories[0]
            draft.entries.extend(
                self.set_attributes(
                    target, mode=node.state.mode, owner=node.state.owner, mtime=node.state.mtime
                ).entries
            )
        key = self._signer.key_for(authority, target)
        moved: list[tuple[Path, Node]] = []
        todo = [(source, node, home)]
        while todo:
            path, directory, home = todo.pop()
            for name, child in self._tree.children(directory).items():
                moved.append(((*path, name), child))
                parent = home if existing is None or directory is not node else self._slot(existing, (*target, name))
                if not child.is_directory:
                    self._link(draft, authority, parent, (*target, name), child)
                    continue
                made = key.sign(
                    parent, self._signer.now(), Action.MKDIR, name, extensions=Extensions(mtime=child.state.mtime)
                )
                draft.entries.append(made)
                self._set_mode(draft, key, made, child.state.mode, child.state.owner)
                todo.append(((*path, name), child, made.hash))
        for path, child in reversed(moved):
            self._delete(draft, path, child)
        self._delete(draft, source, node)

    # -- keys and history ---------------------------------------------------------------------------------------------

    def grant(self, path: Path, key_name: bytes, public: bytes) -> Draft:
        """The entries of `KeyHolder.grant`, without the rest of its plan."""
        return self.key_holder.grant(path, key_name, public).draft

    def admit(self, path: Path, key_name: bytes, public: bytes) -> Draft:
        """The entries of `KeyHolder.admit`, without the rest of its plan."""
        return self.key_holder.admit(path, key_name, public).draft

    def revoke(self, path: Path, key_name: bytes, fingerprint: Fingerprint, *, discard: bool = False) -> Draft:
        """The entries of `KeyHolder.revoke`, without the rest of its plan."""
        return self.key_holder.revoke(path, key_name, fingerprint, discard=discard).draft
