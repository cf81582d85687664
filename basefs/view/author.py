"""The author: turns what a user wants into signed entries, on top of what the view shows.

Nothing here changes anything: the drafts go through `Replica.commit` into the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from basefs.errors import (
    Exists,
    InvalidName,
    IsADirectory,
    NameTooLong,
    NotADirectory,
    NotEmpty,
    NotFound,
    NotPermitted,
    StoreError,
    TooLarge,
)
from basefs.log.blocks import MAX_CONTENT_BYTES
from basefs.log.content import BytesContent, Content
from basefs.log.contents import Contents
from basefs.log.encoder import Encoder
from basefs.log.entries import MAX_CONTENT, Action, Entry
from basefs.log.extensions import Extensions, Quota
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.keys import SigningKey
from basefs.log.store import Store
from basefs.path import Path, check_length, check_name, display
from basefs.view.draft import Draft
from basefs.view.keyholder import KeyHolder
from basefs.view.leaving import leave
from basefs.view.observed import ObservedVersions, Version
from basefs.view.past import Past
from basefs.view.permissions import Authority
from basefs.view.quotas import Use, exceeded
from basefs.view.revert import Reverter
from basefs.view.signer import Signer
from basefs.view.states import ABSENT, DIRECTORY_MODE, MODE_MASK, Kind, Owner, encode_mode, step
from basefs.view.tree import Node, Tree
from basefs.view.walk import SAME_FILE

_NOTHING = Use(0, 0)


class Author:
    """Drafts what users do, for one commit.

    Attributes:
        key_holder: plans grants and revokes.
        reverter: brings back what was.
        past: what was.
    """

    def __init__(self, store: Store, contents: Contents, tree: Tree, signer: Signer, encoder: Encoder) -> None:
        """`encoder`: the contents of the commit that drafts."""
        self._store = store
        self._contents = contents
        self._tree = tree
        self._signer = signer
        self._encoder = encoder
        self._observed = ObservedVersions(store, tree)
        self.key_holder = KeyHolder(store, tree, signer)
        self.reverter = Reverter(store, tree, signer)
        self.past = Past(store, tree, signer)

    # -- what the user has seen ---------------------------------------------------------------------------------------

    @contextmanager
    def based_on(self, versions: Mapping[Path, Version | None]) -> Iterator[None]:
        """Inside, changes of these paths follow these observed versions; `None`: what is shown now."""
        self._observed.begin(versions)
        try:
            yield
        finally:
            self._observed.end()

    def applied(self, entries: Iterable[Entry]) -> None:
        """The drafted entries are in the view: the next change follows them."""
        self._observed.follow(entries)

    def base_of(self, path: Path, version: Version | None) -> EntryHash | None:
        """The write on which a new content of a path builds, if it was made on this version; `None` without one."""
        with self.based_on({path: version}):
            try:
                node = self._as_seen(path, self._tree.find(path))
                if node is None or node.state.kind is not Kind.FILE:
                    return None
                _, node = self._owner(path, node)
                return self._contents.lineages.source(node.outcome.tips[0].hash)
            except StoreError:
                # The draft meets it again, and raises it.
                return None

    # -- quotas -------------------------------------------------------------------------------------------------------

    def check_quotas(self, draft: Draft) -> None:
        """Raise `QuotaExceeded` if what was drafted does not fit into a quota of a key that signed it.

        Raises `NotPermitted` where such a key names what counts only if a key without a quota does.
        """
        if not self._store.has_quotas:
            return
        resolver = self._tree.resolver
        path_ids: dict[EntryHash, int] = {}
        used: dict[Fingerprint, Use] = {}
        for entry in draft.entries:
            path_id = path_ids.get(entry.parent)
            if path_id is None and (placed := self._store.place(entry)) is not None:
                path_id = placed.known_path
            if path_id is None or not entry.action.is_state:
                continue
            path_ids[entry.hash] = path_id
            bytes, entries = used.get(entry.fingerprint, _NOTHING)
            used[entry.fingerprint] = more = Use(bytes + entry.size, entries + 1)
            path = self._store.paths.path_of(path_id)
            limits = self._tree.nearest(path).authority.limits.get(entry.fingerprint)
            if limits is None:
                continue
            named = (EntryHash(entry.content),) if entry.action in (Action.REVERT, Action.LINK) else ()
            if any(map(resolver.is_unfounded, named)):
                raise NotPermitted(
                    f"the key {entry.fingerprint.hex()[:12]} of this node has a quota at {display(path)}, so it cannot "
                    "restore changes of a key that is not valid: ask a key holder without a quota"
                )
            if not resolver.quotas.fits(entry.fingerprint, path_id, limits, more, named):
                raise exceeded(path)

    def _may_link(self, key: SigningKey, directory: Node, target: EntryHash, *, is_moved: bool) -> bool:
        """Whether a link by a key in a directory, or below it, counts by what it names, if the key has a quota."""
        limits = directory.authority.limits.get(key.fingerprint)
        if limits is None:
            return True
        resolver = self._tree.resolver
        is_within = resolver.quotas.fits(key.fingerprint, directory.path_id, limits, _NOTHING, (target,))
        # The depth from which keys count for the new name is not known yet: with 0 fewest of them do.
        return is_within and not resolver.is_unfounded(target, 0 if is_moved else None)

    # -- looking up ---------------------------------------------------------------------------------------------------

    def node(self, path: Path) -> Node:
        """What is at a path, in the version that the change was made on.  Raises as `Tree.node`."""
        node = self._as_seen(path, self._tree.node(path))
        if node is None:
            raise NotFound(f"{display(path)} does not exist")
        return node

    def names_of(self, path: Path, node: Node) -> list[tuple[Path, Node]]:
        """All live names of a file, itself included."""
        return self._tree.names_of(path, node)

    def file_of(self, node: Node) -> EntryHash | None:
        """The entry that stands for the file at a node (`Tree.file_of`)."""
        return self._tree.file_of(node)

    def continues(self, origin: EntryHash) -> EntryHash | None:
        """The file that was made into the file of this origin (`Tree.continues`)."""
        return self._tree.continues(origin)

    def _child(self, directory: Node, path: Path) -> Node | None:
        """What is at a path in this directory, in the version that the change was made on; `None` if nothing."""
        return self._as_seen(path, self._tree.children(directory).get(path[-1]))

    def _as_seen(self, path: Path, node: Node | None) -> Node | None:
        if node is None or not self._observed.is_other(node):
            return node
        outcome = self._observed.outcome(path, node)
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
        check_length(path)
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
                draft.entries.extend(leave(self._tree, self._signer, path, node, path))
                tip, now = node.outcome.tips[0], self._signer.now()
                draft.entries.append(key.sign(tip.hash, now, Action.SLINK, path[-1], target, Extensions(mtime=mtime)))
            return draft
        self._begin(draft, path, Action.SLINK, target, mtime=mtime)
        return draft

    def make_link(self, path: Path, target: Path) -> Draft:
        """A hard link: another name for a file; a copy where no key of this node may write there and at the first name.

        Raises as `make_directory`, and `NotPermitted` for directories.
        """
        node = self.node(target)
        if node.is_directory:
            raise NotPermitted("a directory cannot have a second name")
        draft = Draft()
        _, parent = self._opening(path)
        self._link(draft, self._directory(path[:-1]).authority, parent, path, node)
        return draft

    def _move(
        self, draft: Draft, authority: Authority, parent: EntryHash, target: Path, source: Path, node: Node, top: Path
    ) -> None:
        """Give the file at `source` a name at `target`, where the keys of `authority` may write.

        The caller removes all names at `top` and below, `source` among them.  The mark of a move is left out where the
        first name of the file stays.
        """
        first = self._tree.first_name(node.state)
        if any(name == first and name[: len(top)] != top for name, _ in self._tree.names_of(source, node)):
            self._link(draft, authority, parent, target, node)
            return
        self._link(draft, authority, parent, target, node, is_moved=True)
        draft.entries.extend(leave(self._tree, self._signer, source, node, top))

    def _copy(self, draft: Draft, key: SigningKey, parent: EntryHash, name: bytes, node: Node) -> None:
        """A file or symbolic link of its own, which looks like the one at `node`."""
        state = node.state
        if state.kind is Kind.SYMLINK:
            now, extensions = self._signer.now(), Extensions(mtime=state.mtime)
            copy = key.sign(parent, now, Action.SLINK, name, state.target, extensions)
            draft.entries.append(copy)
        else:
            assert state.content is not None
            copy = self._write(draft, key, parent, name, self._contents.open(state.content), None, state.mtime)
        draft.follow_with_mode(key, copy, step(ABSENT, copy, complete=True), state.mode, state.owner)

    def _link(
        self, draft: Draft, authority: Authority, parent: EntryHash, path: Path, node: Node, *, is_moved: bool = False
    ) -> None:
        """Another name for the file at `node`, with the attributes that it shows.

        `is_moved`: with the mark of a move, which a file without its first name needs in any case.  A link to a link
        names the file itself, so that renaming a file often makes no chain of links.
        """
        state, name = node.state, path[-1]
        self._signer.key_for(authority, path)
        keys = self._signer.valid(authority)
        key = next((key for key in keys if self._tree.resolver.may_change(key.fingerprint, state)), None)
        is_moved = is_moved or state.shared is not None
        target = self._tree.end_of(node) if is_moved else state.link or self._beginning(node)
        if is_moved and self._tree.resolver.level_of(target):
            # That is a copy, which becomes another name of a file once its signer is granted there: so it is copied.
            key = None
        if key is None or not self._may_link(key, self._tree.nearest(path[:-1]), target, is_moved=is_moved):
            self._copy(draft, keys[0] if key is None else key, parent, name, node)
            return
        link = key.sign(parent, self._signer.now(), Action.LINK, name, target, Extensions(is_moved=is_moved))
        draft.entries.append(link)
        resolver = self._tree.resolver
        shown = resolver.state_after(target) if is_moved else resolver.linked(target)
        draft.follow_with_mode(key, link, shown, state.mode, state.owner, state.mtime)

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
        node = self._tree.children(directory).get(path[-1])
        if node is not None and self._observed.is_other(node):
            before = self._observed.outcome(path, node)
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
        path, node = self._owner(path, node)
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
        if state.link is not None:
            # The first name is gone or not ours to write, so the other names must name the entry where the file is now.
            self._relink(draft, path, node, write)
        return draft

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

    def _owner(self, path: Path, node: Node) -> tuple[Path, Node]:
        """The name on which a file's changes are recorded: the one that links point to, if it lives and is ours.

        One that the user has removed does not live, even where another node's version shows at it.
        """
        if node.state.link is None:
            return path, node
        for other, candidate in self._tree.names_of(path, node):
            if candidate.state.link is None and self._signer.may_write(candidate.authority):
                seen = self._as_seen(other, candidate)
                return (path, node) if seen is None else (other, seen)
        return path, node

    def _relink(self, draft: Draft, path: Path, node: Node, change: Entry) -> None:
        for other, link in self._tree.names_of(path, node):
            if other != path and link.state.link is not None and self._signer.may_write(link.authority):
                tip = link.outcome.tips[0]
                key = self._signer.key_for(link.authority, other)
                draft.entries.append(key.sign(tip.hash, self._signer.now(), Action.LINK, tip.name, change.hash))

    # -- attributes ---------------------------------------------------------------------------------------------------

    def set_attributes(
        self, path: Path, *, mode: int | None = None, owner: Owner | None = None, mtime: int | None = None
    ) -> Draft:
        """chmod, chown and utimens: a mode entry, without `mtime` at the same time.  None where nothing changes.

        Raises `NotFound`, `NotADirectory`, `PermissionDenied`.
        """
        draft = Draft()
        path, node = self._owner(path, self._latest(path))
        state = node.state
        bits = state.mode if mode is None or state.kind is Kind.SYMLINK else mode & MODE_MASK
        kept = state.owner if owner is None else owner
        # A directory shows when its names last changed; setting its time ends that, whatever the log says.
        same_time = mtime is None or (mtime == state.mtime and not node.touched)
        if (bits, kept) == (state.mode, state.owner) and same_time:
            return draft
        self._signer.key_for(node.outcome.authorities[0], path)
        for at, name in [(path, node)] if state.link is None else self._tree.names_of(path, node):
            if at == path or (name.state.link is not None and self._signer.may_write(name.authority)):
                # Without the first name every name keeps its own record, so all of them get one.
                key = self._signer.key_for(name.outcome.authorities[0], at)
                tip, now = name.outcome.tips[0], self._signer.now()
                content, extensions = encode_mode(bits, kept), Extensions(mtime=mtime)
                draft.entries.append(key.sign(tip.hash, now, Action.MODE, tip.name, content, extensions))
                if state.link is not None and not self._tree.resolver.may_change(key.fingerprint, state):
                    # That made a file of its own of this name: the others follow it.
                    self._relink(draft, path, node, draft.entries[-1])
                    break
        return draft

    def _latest(self, path: Path) -> Node:
        """What is shown at a path, if the user has seen these attributes there: they change, and nobody's content."""
        seen, shown = self.node(path), self._tree.find(path)
        if shown is None or shown is seen or shown.state.origin != seen.state.origin:
            return seen
        return shown if (shown.state.mode, shown.state.owner) == (seen.state.mode, seen.state.owner) else seen

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
        self._remove(draft, path, node)
        return draft

    def _remove(self, draft: Draft, path: Path, node: Node) -> None:
        """Remove a name; the others of its file stay."""
        draft.entries.extend(leave(self._tree, self._signer, path, node, path))
        self._delete(draft, path, node)

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
        if source == target or (existing is not None and self._is_same_file(node, existing)):
            return draft
        if existing is not None:
            self._check_replace(node, existing, target)
        if node.is_directory:
            self._move_tree(draft, source, node, target, existing)
            return draft
        if existing is None:
            _, parent = self._opening(target)
            self._move(draft, self._directory(target[:-1]).authority, parent, target, source, node, source)
        else:
            draft = self._replace(source, node, target, existing)
        self._delete(draft, source, node)
        return draft

    def _replace(self, source: Path, node: Node, target: Path, existing: Node) -> Draft:
        """Give a name that exists to another file or symbolic link; other names of either file stay what they are."""
        state = node.state
        both_files = state.kind is Kind.FILE and existing.state.kind is Kind.FILE
        target_has_others = len(self._tree.names_of(target, existing)) > 1
        source_has_others = len(self._tree.names_of(source, node)) > 1
        if both_files and not target_has_others and not source_has_others:
            assert state.content is not None
            # A new content of the same file: a small delta, and its history goes on.
            content = self._contents.open(state.content)
            return self.write(target, content, mode=state.mode, owner=state.owner, mtime=state.mtime)
        draft = Draft()
        key = self._signer.key_for(existing.authority, target)
        parent = existing.outcome.tips[0].hash
        if target_has_others and existing.state.link is None:
            # The other names follow this one, so its file must end before another one begins here.
            self._remove(draft, target, existing)
            parent = draft.entries[-1].hash
        if both_files and not source_has_others:
            assert state.content is not None
            content = self._contents.open(state.content)
            write = self._write(draft, key, parent, target[-1], content, None, state.mtime)
            self._set_mode(draft, key, write, state.mode, state.owner)
        else:
            self._move(draft, existing.authority, parent, target, source, node, source)
        return draft

    def _is_same_file(self, left: Node, right: Node) -> bool:
        file = self._tree.file_of(left)
        return file is not None and file == self._tree.file_of(right)

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
                check_length((*target, *path[len(source) :], name))
                moved.append(((*path, name), child))
                parent = home if existing is None or directory is not node else self._slot(existing, (*target, name))
                if not child.is_directory:
                    self._move(draft, authority, parent, (*target, name), (*path, name), child, source)
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

    def grant(self, path: Path, key_name: bytes, public: bytes, quota: Quota | None = None) -> Draft:
        """The entries of `KeyHolder.grant`, without the rest of its plan."""
        return self.key_holder.grant(path, key_name, public, quota).draft

    def admit(self, path: Path, key_name: bytes, public: bytes) -> Draft:
        """The entries of `KeyHolder.admit`, without the rest of its plan."""
        return self.key_holder.admit(path, key_name, public).draft

    def revoke(self, path: Path, key_name: bytes, fingerprint: Fingerprint, *, discard: bool = False) -> Draft:
        """The entries of `KeyHolder.revoke`, without the rest of its plan."""
        return self.key_holder.revoke(path, key_name, fingerprint, discard=discard).draft
