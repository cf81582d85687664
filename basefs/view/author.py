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
    TooLarge,
)
from basefs.log.blocks import MAX_CONTENT_BYTES
from basefs.log.content import BytesContent, Content
from basefs.log.contents import Contents
from basefs.log.encoder import Encoder
from basefs.log.entries import MAX_CONTENT, ROOT_NAME, Action, Entry
from basefs.log.extensions import Extensions
from basefs.log.hashes import EntryHash, Fingerprint
from basefs.log.keys import SigningKey
from basefs.log.store import Store
from basefs.path import Path, check_length, check_name, display
from basefs.view.draft import Draft, End
from basefs.view.keyholder import KeyHolder
from basefs.view.past import Past
from basefs.view.revert import Reverter
from basefs.view.signer import Signer, clamp_time
from basefs.view.states import (
    ABSENT,
    DIRECTORY_MODE,
    FILE_MODE,
    LINK_MODE,
    MODE_MASK,
    Kind,
    Owner,
    State,
    Xattrs,
    encode_node,
)
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
        check_length(path)
        directory = self._directory(path[:-1])
        if self._child(directory, path) is not None:
            raise Exists(f"{display(path)} exists already")
        return directory

    # -- what a publisher drafts --------------------------------------------------------------------------------------

    def make(
        self,
        draft: Draft,
        key: SigningKey,
        end: End,
        wanted: State,
        content: Content | None = None,
        *,
        timed: bool = True,
    ) -> End:
        """Draft what makes a path the wanted state: a mkdir, write, slink or node, then mode and xattr where needed.

        Args:
            draft: takes the entries.
            key: signs them.
            end: what they follow; of a new path its state is absent.
            wanted: kind, mode, owner, time, target, device and extended attributes; the rest has no meaning here.
            content: of a file.
            timed: whether `wanted.mtime` is the time of what is made; otherwise that is the time of signing.

        Raises `NameTooLong` for the target of a symbolic link over 4095 bytes, `TooLarge`, `NotPermitted` for an
        extended attribute that no entry holds.
        """
        now = self._signer.now()
        mtime = clamp_time(wanted.mtime) if timed else now
        wanted = wanted._replace(mtime=mtime)
        extensions = Extensions(mtime=mtime if timed else None)
        if wanted.kind is Kind.FILE:
            assert content is not None, "a file has a content"
            made = self._write(draft, key, end, content, extensions.mtime)
        elif wanted.kind is Kind.SYMLINK:
            if not 0 < len(wanted.target) <= MAX_CONTENT:
                raise NameTooLong(f"the target of a symbolic link has 1 to {MAX_CONTENT} bytes")
            made = key.sign(end.tip, now, Action.SLINK, end.name, wanted.target, extensions)
        elif wanted.kind is Kind.DIRECTORY:
            made = key.sign(end.tip, now, Action.MKDIR, end.name, b"", extensions)
        else:
            node = encode_node(wanted.kind, wanted.rdev)
            made = key.sign(end.tip, now, Action.NODE, end.name, node, extensions)
        shown = draft.append(made, end.state)
        return draft.settle(key, made.made, shown, wanted if timed else wanted._replace(mtime=shown.state.mtime))

    def link(self, draft: Draft, key: SigningKey, end: End, target: End, wanted: State | None = None) -> End:
        """Draft a path that begins as another one is at `target`, or with the `wanted` attributes.

        Other arguments, and what it raises, as for `make`.
        """
        entry = key.sign(end.tip, self._signer.now(), Action.LINK, end.name, target.tip)
        draft.entries.append(entry)
        shown = End(end.name, entry.hash, target.state._replace(origin=entry.hash))
        return shown if wanted is None else self.settle(draft, key, shown, wanted)

    def settle(self, draft: Draft, key: SigningKey, end: End, wanted: State) -> End:
        """Draft what gives a path the wanted mode, owner, time and extended attributes; nothing where it has them.

        Arguments, and what it raises, as for `make`.
        """
        wanted = wanted._replace(mtime=clamp_time(wanted.mtime))
        return draft.settle(key, self._signer.now(), end, wanted)

    def delete(self, draft: Draft, key: SigningKey, end: End) -> End:
        """Draft the removal of a path behind one of its ends."""
        return draft.append(key.sign(end.tip, self._signer.now(), Action.DELETE, end.name), end.state)

    def slot(self, path: Path) -> EntryHash | None:
        """What the first entry of a path follows: the delete of what was there, or the mkdir of its directory.

        A delete counts below its own mkdir only.  `None` where the view shows no directory above the path, or
        something at it.
        """
        directory = self._tree.find(path[:-1])
        if directory is None or not directory.is_directory or path[-1] in self._tree.children(directory):
            return None
        return self._slot(directory, path)

    def live_ends(self, path: Path, seen: int | None = None) -> list[EntryHash]:
        """The ends of a path behind each of which a delete must come for nothing to be there.

        These are the tips of what is shown, and the ends of the branches that lost to that: one of them would be
        shown otherwise.  None where nothing is, and none that a key of this node cannot end.

        `seen`: none that arrived after the entry with this number; `None`: all.
        """
        return [tip for tip, _ in self._live_ends(path) if seen is None or (self._store.sequence(tip) or 0) <= seen]

    def _live_ends(self, path: Path) -> list[tuple[EntryHash, SigningKey]]:
        ends = ((hash, self._signer.valid(authority)) for hash, authority in self._tree.live_ends(path).items())
        return [(hash, keys[0]) for hash, keys in ends if keys]

    def directory_of(self, entry: EntryHash) -> EntryHash | None:
        """The mkdir below which an entry stands; `None` for an unknown one."""
        placed = self._store.get(entry)
        return None if placed is None else placed.directory

    def is_same(self, content: Content, write: EntryHash) -> bool:
        """Whether a content is that of a write."""
        return self._encoder.is_same(content, write)

    # -- making paths -------------------------------------------------------------------------------------------------

    def make_directory(
        self, path: Path, *, mode: int = DIRECTORY_MODE, owner: Owner | None = None, mtime: int | None = None
    ) -> Draft:
        """A new directory.  Raises `Exists`, `NotFound`, `NotADirectory`, `PermissionDenied`, or a bad name's error."""
        return self._begin(path, State(Kind.DIRECTORY, mode & MODE_MASK, owner), mtime)

    def make_node(
        self, path: Path, kind: Kind, rdev: int = 0, *, mode: int = FILE_MODE, owner: Owner | None = None
    ) -> Draft:
        """A new fifo or device.  Raises as `make_directory`."""
        return self._begin(path, State(kind, mode & MODE_MASK, owner, rdev=rdev), None)

    def make_symlink(self, path: Path, target: bytes, *, mtime: int | None = None, replace: bool = False) -> Draft:
        """A new symbolic link, with `replace` also in the place of a file or another one.

        Raises as `make_directory`, and `NameTooLong` for a target over 4095 bytes.
        """
        wanted = State(Kind.SYMLINK, LINK_MODE, target=target)
        node = self._child(self._directory(path[:-1]), path) if replace and path else None
        if node is None or node.is_directory:
            return self._begin(path, wanted, mtime)
        draft = Draft()
        if node.state.kind is not Kind.SYMLINK or node.state.target != target:
            key = self._signer.key_for(node.authority, path)
            self._make_at(draft, key, _end(path, node), wanted, mtime)
        return draft

    def make_link(self, path: Path, target: Path) -> Draft:
        """Another path that begins as a file is, and goes its own way from then on.

        Raises as `make_directory`, and `NotPermitted` for directories.
        """
        node = self.node(target)
        if node.is_directory:
            raise NotPermitted("a directory cannot have a second name")
        draft = Draft()
        key, end = self._opening(path)
        self.link(draft, key, end, _end(target, node))
        return draft

    def _begin(self, path: Path, wanted: State, mtime: int | None) -> Draft:
        """What makes a new path."""
        draft = Draft()
        key, end = self._opening(path)
        self._make_at(draft, key, end, wanted, mtime)
        return draft

    def _make_at(
        self,
        draft: Draft,
        key: SigningKey,
        end: End,
        wanted: State,
        mtime: int | None,
        content: Content | None = None,
    ) -> End:
        """`make`, with the time of signing where none is given."""
        wanted = wanted if mtime is None else wanted._replace(mtime=mtime)
        return self.make(draft, key, end, wanted, content, timed=mtime is not None)

    def _opening(self, path: Path) -> tuple[SigningKey, End]:
        """The key that signs the first entry of a new path, and what that follows.  Raises where there can be none."""
        directory = self._check_new(path)
        return self._signer.key_for(directory.authority, path), End(path[-1], self._slot(directory, path), ABSENT)

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
            owner: `None` keeps it, or leaves a new file to the mounting user.
            mtime: nanoseconds since 1970, also if the content stays the same; `None` is `written`.
            written: nanoseconds since 1970, when the content was written; `None` is now.

        Raises as `make_directory`, and `IsADirectory`, `TooLarge`.
        """
        content = BytesContent(content) if isinstance(content, bytes) else content
        stamp = written if mtime is None else mtime
        node = self._child(self._directory(path[:-1]), path) if path else self._tree.root
        if node is None:
            key, end = self._opening(path)
        elif node.is_directory:
            raise IsADirectory(f"{display(path)} is a directory")
        else:
            key, end = self._signer.key_for(node.authority, path), _end(path, node)
        state = end.state
        if state.kind is not Kind.FILE:
            wanted = State(Kind.FILE, FILE_MODE if mode is None else mode & MODE_MASK, owner)
        elif state.content is not None and self._encoder.is_same(content, state.content):
            return self.set_attributes(path, mode=mode, owner=owner, mtime=mtime)
        else:
            wanted = _with_attributes(state, mode, owner)
        draft = Draft()
        self._make_at(draft, key, end, wanted, stamp, content)
        return draft

    def _write(self, draft: Draft, key: SigningKey, end: End, content: Content, mtime: int | None) -> Entry:
        if content.size > MAX_CONTENT_BYTES:
            raise TooLarge(f"a file has up to {MAX_CONTENT_BYTES} bytes")
        found = self._encoder.encoded(content, end.state.content)
        named = b"" if found.encoded is None else found.encoded.encode()
        extensions = Extensions(content.size, mtime)
        entry = key.sign(end.tip, self._signer.now(), Action.WRITE, end.name, named, extensions)
        draft.blocks.extend(found.blocks)
        draft.large |= found.is_stored
        draft.contents[entry.hash] = content
        return entry

    # -- attributes ---------------------------------------------------------------------------------------------------

    def set_attributes(
        self,
        path: Path,
        *,
        mode: int | None = None,
        owner: Owner | None = None,
        mtime: int | None = None,
        xattrs: Xattrs | None = None,
    ) -> Draft:
        """chmod, chown, utimens and setxattr; `None` keeps what is there.  Nothing where nothing changes.

        Raises `NotFound`, `NotADirectory`, `PermissionDenied`, and as `make`.
        """
        draft = Draft()
        node = self.node(path)
        end = _end(path, node)
        wanted = _with_attributes(node.state, mode, owner)
        if mtime is not None:
            wanted = wanted._replace(mtime=mtime)
            if node.touched and mtime == node.state.mtime:
                # A directory shows when its names last changed; setting its time ends that, whatever the log says.
                end = end._replace(state=end.state._replace(mtime=mtime - 1))
        if xattrs is not None:
            wanted = wanted._replace(xattrs=tuple(sorted(xattrs)))
        if wanted != end.state:
            key = self._signer.key_for(node.outcome.authorities[0], path)
            self.settle(draft, key, end, wanted)
        return draft

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
        if directory and self._tree.children(node):
            raise NotEmpty(f"{display(path)} is not empty")
        draft = Draft()
        self._delete(draft, path, node)
        return draft

    def _delete(self, draft: Draft, path: Path, node: Node) -> None:
        # Every branch that is part of the (merged) path must end, and those that lost would come back; one that nobody
        # here saw must stay.
        for authority in node.outcome.authorities:
            self._signer.key_for(authority, path)
        for tip, key in self._live_ends(path):
            self.delete(draft, key, End(path[-1], tip, node.state))

    def rename(self, source: Path, target: Path, *, replace: bool = True) -> Draft:
        """Move a file, a symbolic link, or a directory with all below it: new paths, and removals of the former ones.

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
            key, end = self._signer.key_for(existing.authority, target), _end(target, existing)
        else:
            key, end = self._opening(target)
        if node.is_directory:
            self._move_tree(draft, source, node, key, target, end)
            return draft
        self.link(draft, key, end, _end(source, node))
        self._delete(draft, source, node)
        return draft

    def _check_replace(self, node: Node, existing: Node, target: Path) -> None:
        if existing.is_directory and not node.is_directory:
            raise IsADirectory(f"{display(target)} is a directory")
        if node.is_directory and not existing.is_directory:
            raise NotADirectory(f"{display(target)} is not a directory")
        if existing.is_directory and self._tree.children(existing):
            raise NotEmpty(f"{display(target)} is not empty")

    def _move_tree(self, draft: Draft, source: Path, node: Node, key: SigningKey, target: Path, end: End) -> None:
        """Move a directory; `end`: where its new path ends, as nothing or as an empty directory."""
        existing = self._tree.find(target)
        if end.state.kind is Kind.ABSENT:
            end = self.make(draft, key, end, node.state)
        else:
            end = self.settle(draft, key, end, node.state)
        moved: list[tuple[Path, Node]] = []
        todo = [(source, node, end)]
        while todo:
            path, directory, end = todo.pop()
            assert end.state.origin is not None, "a directory has its mkdir"
            for name, child in self._tree.children(directory).items():
                check_length((*target, *path[len(source) :], name))
                moved.append(((*path, name), child))
                parent = end.state.origin
                if existing is not None and directory is node:
                    parent = self._slot(existing, (*target, name))
                opening = End(name, parent, ABSENT)
                if child.is_directory:
                    todo.append(((*path, name), child, self.make(draft, key, opening, child.state)))
                else:
                    self.link(draft, key, opening, _end((*path, name), child))
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


def _end(path: Path, node: Node) -> End:
    """Where what is shown at a path ends."""
    return End(path[-1] if path else ROOT_NAME, node.outcome.tips[0].hash, node.state)


def _with_attributes(state: State, mode: int | None, owner: Owner | None) -> State:
    """A state with another mode or owner, where these are given."""
    bits = state.mode if mode is None or state.kind is Kind.SYMLINK else mode & MODE_MASK
    return state._replace(mode=bits, owner=state.owner if owner is None else owner)
