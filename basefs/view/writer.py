"""The writer: makes paths, and gives files contents and attributes.

Nothing here changes anything: the drafts go through `Replica.apply` like entries from anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from basefs.errors import (
    Exists,
    IsADirectory,
    NameTooLong,
    NotADirectory,
    NotFound,
    NotPermitted,
    StoreError,
    TooLarge,
)
from basefs.log.content import BytesContent, Content
from basefs.log.contents import MAX_CONTENT_BYTES, Contents
from basefs.log.entries import MAX_CONTENT, Action, Entry
from basefs.log.hashes import EntryHash
from basefs.log.keys import SigningKey
from basefs.log.preparations import Preparations
from basefs.log.store import Store
from basefs.path import Path, check_name, display
from basefs.view.draft import Draft
from basefs.view.permissions import Authority
from basefs.view.seen import Seen
from basefs.view.signer import Signer
from basefs.view.states import DIRECTORY_MODE, FILE_MODE, MODE_MASK, Kind, Owner, encode_mode, step
from basefs.view.tree import Node, Tree
from basefs.view.walk import SAME_FILE


class Writer(Signer):
    """Drafts what makes and changes single paths.

    Attributes:
        preparations: the contents of the commit that drafts now.  A draft is good only if they are complete after it.
        seen: the versions that the changes follow which are drafted now.
    """

    def __init__(
        self, store: Store, contents: Contents, tree: Tree, keys: Sequence[SigningKey], clock: Callable[[], float]
    ) -> None:
        super().__init__(tree, keys, clock)
        self._store = store
        self._contents = contents
        self.preparations = Preparations(contents)
        self.seen = Seen(store, tree)

    # -- looking up ---------------------------------------------------------------------------------------------------

    def node(self, path: Path) -> Node:
        """What is at a path, as the user has seen it who changes it.  Raises as `Signer.node`."""
        node = self._as_seen(path, super().node(path))
        if node is None:
            raise NotFound(f"{display(path)} does not exist")
        return node

    def _child(self, directory: Node, path: Path) -> Node | None:
        """What is at a path in this directory, as the user has seen it who changes it; `None` if nothing."""
        return self._as_seen(path, self._tree.children(directory).get(path[-1]))

    def _as_seen(self, path: Path, node: Node | None) -> Node | None:
        if node is None or not self.seen.is_other(node):
            return node
        outcome = self.seen.outcome(path, node)
        return None if outcome is None or outcome.state.kind is Kind.ABSENT else Node(node.name, node.path_id, outcome)

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
        self.signer(directory.authority, path)

    def make_directory(
        self, path: Path, *, mode: int = DIRECTORY_MODE, owner: Owner | None = None, mtime: int | None = None
    ) -> Draft:
        """A new directory.  Raises `Exists`, `NotFound`, `NotADirectory`, `PermissionDenied`, or a bad name's error."""
        draft = Draft()
        made = self._begin(draft, path, Action.MKDIR, b"", mtime=mtime)
        self._set_mode(draft, made, mode, owner, self._check_new(path).authority, path)
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
                key = self.signer(node.authority, path)
                stamp = self.now() if mtime is None else mtime
                draft.entries.append(key.sign(node.outcome.tips[0].hash, stamp, Action.SLINK, path[-1], target))
            return draft
        self._begin(draft, path, Action.SLINK, target, mtime=mtime)
        return draft

    def make_link(self, path: Path, target: Path) -> Draft:
        """A hard link: another name for a file.  Raises as `make_directory`, and `NotPermitted` for directories."""
        node = self.node(target)
        if node.is_directory:
            raise NotPermitted("a directory cannot have a second name")
        draft = Draft()
        self._begin_link(draft, path, node)
        return draft

    def _begin_link(self, draft: Draft, path: Path, node: Node) -> None:
        key, parent = self._opening(path)
        self._link(draft, key, parent, path[-1], node)

    def _link(self, draft: Draft, key: SigningKey, parent: EntryHash, name: bytes, node: Node) -> None:
        """Another name for the file at `node`, with the attributes that it shows.

        A link to a link names the file itself, so that renaming a file often makes no chain of links.
        """
        state = node.state
        target = state.link or self._beginning(node)
        link = key.sign(parent, state.mtime, Action.LINK, name, target)
        draft.entries.append(link)
        shown = self._tree.linked(target)
        draft.follow_with_mode(key, link, shown, state.mode, state.owner, state.mtime)

    def _begin(self, draft: Draft, path: Path, action: Action, content: bytes, *, mtime: int | None = None) -> Entry:
        key, parent = self._opening(path)
        entry = key.sign(parent, self.now() if mtime is None else mtime, action, path[-1], content)
        draft.entries.append(entry)
        return entry

    def _opening(self, path: Path) -> tuple[SigningKey, EntryHash]:
        """Who signs the first entry of a new path, and what it hangs on.  Raises where there can be none."""
        directory = self._check_new(path)
        return self.signer(directory.authority, path), self._slot(directory, path)

    def _slot(self, directory: Node, path: Path) -> EntryHash:
        """What the first entry of a new path hangs on: the delete of what was there before, or the directory."""
        node = self._tree.children(directory).get(path[-1])
        if node is not None and self.seen.is_other(node):
            before = self.seen.outcome(path, node)
        else:
            before = self._tree.absent(directory, path[-1])
        return directory.outcome.directories[0] if before is None else before.tips[0].hash

    def _beginning(self, node: Node) -> EntryHash:
        """The earliest entry from which a file goes on without a break.

        All later forks are behind it, so that every name chooses among them alike.
        """
        first = node.outcome.tips[0]
        while first.hash != node.state.origin and first.action in SAME_FILE:
            parent = self._store.get(first.parent)
            if parent is None or parent.entry.action not in SAME_FILE | {Action.SLINK}:
                break
            first = parent.entry
        return first.hash

    def continues(self, origin: EntryHash) -> EntryHash | None:
        """The origin of the file that a write behind a hard link has made into the file of this origin, or `None`.

        That is how a file is written whose first name is gone; its other names are linked to that write.
        """
        placed = self._store.get(origin)
        if placed is None or placed.entry.action is not Action.WRITE:
            return None
        placed = self._store.get(placed.entry.parent)
        while placed is not None and placed.entry.action in (Action.MODE, Action.ACK):
            placed = self._store.get(placed.entry.parent)
        if placed is None or placed.entry.action is not Action.LINK:
            return None
        return self._tree.linked(EntryHash(placed.entry.content)).origin

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
            content: all of it; of a large file what `as_content` makes, before the commit: it reads the file.
            mode: permission bits; `None` keeps them, or gives a new file 0644.
            owner: names of owner and group; `None` keeps them, or leaves a new file to whoever mounts.
            mtime: UNIX seconds, also if the content stays the same; `None` is `written`.
            written: UNIX seconds, when the content was written; `None` is now.

        Raises as `make_directory`, and `IsADirectory`, `TooLarge`.
        """
        content = BytesContent(content) if isinstance(content, bytes) else content
        if content.size > MAX_CONTENT_BYTES:
            raise TooLarge(f"a file has up to {MAX_CONTENT_BYTES} bytes")
        draft = Draft()
        stamp = written if mtime is None else mtime
        directory = self._directory(path[:-1]) if path else self._tree.root
        node = self._child(directory, path) if path else self._tree.root
        if node is None:
            key, parent = self._opening(path)
            write = self._write(draft, key, parent, path[-1], content, None, stamp)
            self._set_mode(draft, write, mode, owner, directory.authority, path)
            return draft
        if node.is_directory:
            raise IsADirectory(f"{display(path)} is a directory")
        path, node = self._owner(path, node)
        key = self.signer(node.authority, path)
        tip = node.outcome.tips[0]
        state = node.state
        base = state.content if state.kind is Kind.FILE else None
        if base is not None and self.preparations.is_same(content, base):
            return self.set_attributes(path, mode=mode, owner=owner, mtime=mtime)
        write = self._write(draft, key, tip.hash, path[-1], content, self._contents.lineages.source(tip.hash), stamp)
        if state.kind is Kind.FILE:
            kept = state.mode if mode is None else mode & MODE_MASK, state.owner if owner is None else owner
            draft.follow_with_mode(key, write, step(state, write, complete=True), *kept)
        else:
            self._set_mode(draft, write, mode, owner, node.authority, path)
        if state.link is not None:
            # The first name is gone or not ours to write, so the other names must be told where the file is now.
            self._relink(draft, path, node, write)
        return draft

    def foresee(self, path: Path, content: Content) -> None:
        """Prepare a content that will be written at a path, if the path stays as it is until then."""
        try:
            node = self._tree.find(path)
            if node is None or node.state.kind is not Kind.FILE:
                self.preparations.want(content, None)
                return
            path, node = self._owner(path, node)
            base = node.state.content
            if base is None or not self.preparations.is_same(content, base):
                self.preparations.want(content, self._contents.lineages.source(node.outcome.tips[0].hash))
        except StoreError:
            # The draft will meet it again, and tell.
            return

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
        prepared = self.preparations.want(content, base)
        stamp = self.now() if mtime is None else mtime
        entry = key.sign(parent, stamp, Action.WRITE, name, prepared.first, content.size)
        draft.entries.append(entry)
        draft.blocks.extend(prepared.blocks)
        draft.contents[entry.hash] = content
        return entry

    def names_of(self, path: Path, node: Node) -> list[tuple[Path, Node]]:
        """All live names of a file, itself included."""
        found = {path: node}
        path_id = node.path_id
        if node.state.link is not None:
            target = self._store.get(node.state.link)
            if target is not None:
                path_id = target.path_id
                first = self._store.paths.path_of(path_id)
                owner = self._tree.find(first)
                if owner is not None and owner.path_id == path_id and owner.state.origin == node.state.origin:
                    found[first] = owner
        for other, link in self._tree.links(path_id):
            if link.state.origin == node.state.origin:
                found[other] = link
        return list(found.items())

    def _owner(self, path: Path, node: Node) -> tuple[Path, Node]:
        """The name on which a file's changes are recorded: the one that links point to, if it lives and is ours."""
        if node.state.link is None:
            return path, node
        for other, candidate in self.names_of(path, node):
            if candidate.state.link is None and self.may_write(candidate.authority):
                return other, self._as_seen(other, candidate) or candidate
        return path, node

    def _relink(self, draft: Draft, path: Path, node: Node, write: Entry) -> None:
        for other, link in self.names_of(path, node):
            if other != path and link.state.link is not None and self.may_write(link.authority):
                tip = link.outcome.tips[0]
                key = self.signer(link.authority, other)
                draft.entries.append(key.sign(tip.hash, self.now(), Action.LINK, tip.name, write.hash))

    # -- attributes ---------------------------------------------------------------------------------------------------

    def set_attributes(
        self, path: Path, *, mode: int | None = None, owner: Owner | None = None, mtime: int | None = None
    ) -> Draft:
        """chmod, chown and utimens: a mode entry, whose timestamp is the file's time.  No entry where nothing changes.

        Raises `NotFound`, `NotADirectory`, `PermissionDenied`.
        """
        draft = Draft()
        path, node = self._owner(path, self._latest(path))
        state = node.state
        bits = state.mode if mode is None or state.kind is Kind.SYMLINK else mode & MODE_MASK
        kept = state.owner if owner is None else owner
        stamp = state.mtime if mtime is None else mtime
        # A directory shows when its names last changed; setting its time ends that, whatever the log says.
        same_time = stamp == state.mtime and (mtime is None or not node.touched)
        if (bits, kept) == (state.mode, state.owner) and same_time:
            return draft
        self.signer(node.outcome.authorities[0], path)
        for at, name in [(path, node)] if state.link is None else self.names_of(path, node):
            if at == path or (name.state.link is not None and self.may_write(name.authority)):
                # Without the first name every name keeps its own record, so all of them are told.
                key = self.signer(name.outcome.authorities[0], at)
                tip = name.outcome.tips[0]
                draft.entries.append(key.sign(tip.hash, stamp, Action.MODE, tip.name, encode_mode(bits, kept)))
        return draft

    def _latest(self, path: Path) -> Node:
        """What is shown at a path, if the user has seen these attributes there: they change, and nobody's content."""
        seen, shown = self.node(path), self._tree.find(path)
        if shown is None or shown is seen or shown.state.origin != seen.state.origin:
            return seen
        return shown if (shown.state.mode, shown.state.owner) == (seen.state.mode, seen.state.owner) else seen

    def _set_mode(
        self, draft: Draft, made: Entry, mode: int | None, owner: Owner | None, authority: Authority, path: Path
    ) -> None:
        """Follow a new path's first entry with a mode entry, where the default is not what is wanted."""
        default = DIRECTORY_MODE if made.action is Action.MKDIR else FILE_MODE
        bits = default if mode is None else mode & MODE_MASK
        if bits != default or owner is not None:
            key = self.signer(authority, path)
            content = encode_mode(bits, owner)
            draft.entries.append(key.sign(made.hash, made.timestamp, Action.MODE, made.name, content))
