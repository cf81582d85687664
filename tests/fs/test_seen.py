"""A change follows what was there when it was made, whatever arrives before it is published."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from basefs.fs.fuse.kernel import Kernel
from basefs.fs.fuse.mirror import Mirror
from basefs.fs.staging.journal import JOURNAL_FILE
from basefs.fs.staging.workingset import DIRECTORY

from basefs.log.entries import Entry
from basefs.log.keys import SigningKey
from basefs.replica.replica import Applied, Replica
from basefs.view.states import Kind, State
from tests.fs.local import Local, Surrounded
from tests.fs.numbers import confused
from tests.support.helpers import BOB, ROOT_KEY, Clock, genesis, make_key, make_replica, path, tree_of

F = path("/d/f")


class Two:
    """A node whose applications change something, and another one.

    Attributes:
        here: with a filesystem.
        there: without.
    """

    def __init__(self, base: Path, keys: tuple[SigningKey, SigningKey]) -> None:
        self._base = base
        self._keys = keys
        born = genesis((ROOT_KEY, BOB))
        here, there = (make_replica(base / name, [key], born=born) for name, key in zip("ab", keys, strict=True))
        here.close()
        here = Surrounded(base / "a", [keys[0]], clock=Clock())
        self.here = Local(here)
        self.there = there
        self.sent: dict[Replica, list[Applied]] = {here: [], there: []}
        for replica in (here, there):
            self._follow(replica)

    def _follow(self, replica: Replica) -> None:
        sent = self.sent[replica]
        replica.subscribe(lambda applied: sent.append(applied) if applied.local else None)

    def deliver(self, sender: Replica, receiver: Replica) -> None:
        """What one has published arrives at the other one."""
        for applied in self.sent[sender]:
            receiver.apply(applied.entries, applied.blocks)
        self.sent[sender].clear()

    def meet(self) -> None:
        """Both are quiet, and alike."""
        self.here.publish()
        for _ in range(3):
            self.deliver(self.here.replica, self.there)
            self.deliver(self.there, self.here.replica)
            self.here.publish()
        assert self.here.fs.working.unpublished() == 0
        assert tree_of(self.here.replica) == tree_of(self.there)
        assert self.here.replica.check_view() == self.there.check_view() == []

    def begin(self) -> None:
        """A directory with a file that both know."""
        self.here.fs.namespace.make_directory(path("/d"), 0o755)
        self.here.save("/d/f", b"first")
        self.meet()

    def elsewhere(self, content: bytes = b"theirs", where: str = "/d/f") -> Entry:
        """Another node's version arrives; its entry."""
        self.there.commit(lambda author: author.write(path(where), content))
        (entry,) = self.sent[self.there][-1].entries[:1]
        self.deliver(self.there, self.here.replica)
        return entry

    def remove_elsewhere(self) -> None:
        """Another node removes the file, and this one hears of it."""
        self.there.commit(lambda author: author.remove(F, directory=False))
        self.deliver(self.there, self.here.replica)

    def restart(self) -> None:
        """This node is killed and started again."""
        target = self._base / f"{self.here.replica.directory.name}a"
        shutil.copytree(self.here.replica.directory, target)
        sent = self.sent.pop(self.here.replica)
        self.here.replica.close()
        self.here = Local(Replica(target, [self._keys[0]]))
        self.sent[self.here.replica] = sent
        self._follow(self.here.replica)

    def check_kept(self, entry: Entry, where: str = "/d/f") -> bool:
        """Nothing of another node's version is lost without a word; whether it is what shows."""
        survey = self.there.survey(path(where))
        walk = {tip.hash for tip in survey.outcome.tips} if survey.outcome is not None else set()
        lost = {conflict.lost.hash for conflict in survey.conflicts()}
        assert entry.hash in walk | lost, [revision.standing for revision in survey.revisions()]
        assert (entry.hash in walk) != (entry.hash in lost)
        return entry.hash in walk

    def shown(self) -> dict[bytes, bytes]:
        """The files in the directory that both know, as applications see them."""
        working = self.here.fs.working
        if not working.exists(path("/d")):
            return {}
        files = [name for name, bits in self.here.listing("/d").items() if bits == stat.S_IFREG]
        return {name: self.here.load((b"d", name)) for name in files}

    def close(self) -> None:
        self.here.replica.close()
        self.there.close()


@pytest.fixture(params=["the other key wins", "this key wins", "one key"])
def two(scratch: Path, request: pytest.FixtureRequest) -> Iterator[Two]:
    """Two nodes with keys of equal authority, or with one that both have: then the hash decides."""
    keys = {"one key": (ROOT_KEY, ROOT_KEY), "this key wins": (ROOT_KEY, BOB), "the other key wins": (BOB, ROOT_KEY)}
    made = Two(scratch, keys[request.param])
    made.begin()
    yield made
    made.close()


CHANGES: dict[str, Callable[[Local], object]] = {
    "rm": lambda here: here.fs.namespace.unlink(F),
    "rm -r": lambda here: (here.fs.namespace.unlink(F), here.fs.namespace.remove_directory(path("/d"))),
    "rm -r; mkdir": lambda here: (
        here.fs.namespace.unlink(F),
        here.fs.namespace.remove_directory(path("/d")),
        here.fs.namespace.make_directory(path("/d"), 0o755),
    ),
    "rm; echo": lambda here: (here.fs.namespace.unlink(F), here.save("/d/f", b"ours, anew")),
    "echo": lambda here: here.save("/d/f", b"ours"),
    "ln -sf": lambda here: (
        here.fs.namespace.make_symlink(path("/d/l"), b"x"),
        here.fs.namespace.rename(path("/d/l"), F),
    ),
    "mv over it": lambda here: (here.save("/d/new", b"ours"), here.fs.namespace.rename(path("/d/new"), F)),
    "rm; mkdir": lambda here: (here.fs.namespace.unlink(F), here.fs.namespace.make_directory(F, 0o755)),
    "mv f f~; echo": lambda here: (here.fs.namespace.rename(F, path("/d/f~")), here.save("/d/f", b"ours")),
    "echo; mv": lambda here: (here.save("/d/f", b"ours"), here.fs.namespace.rename(F, path("/d/g"))),
    "exchange": lambda here: (here.save("/d/e", b"ours"), here.fs.namespace.rename(F, path("/d/e"), exchange=True)),
    "truncate": lambda here: here.fs.files.truncate(F, 2),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_what_arrives_before_a_change_is_published_is_not_lost(
    two: Two, change: Callable[[Local], object], killed: bool
) -> None:
    change(two.here)
    if killed:
        two.restart()
    shown = two.shown()
    theirs = two.elsewhere()
    assert two.shown() == shown, "until it is published"
    two.meet()
    two.check_kept(theirs)


@pytest.mark.parametrize("is_strong", [True, False])
def test_authority_decides_between_a_removal_and_what_it_did_not_see(scratch: Path, is_strong: bool) -> None:
    """The key of / wins over one that was granted below, whichever came first."""
    carol = make_key("carol")
    two = Two(scratch, (ROOT_KEY, carol) if is_strong else (carol, ROOT_KEY))
    root, weak = (two.here.replica, two.there) if is_strong else (two.there, two.here.replica)
    root.commit(lambda author: author.make_directory(path("/d")))
    root.commit(lambda author: author.write(F, b"first"))
    root.commit(lambda author: author.grant(path("/d"), b"carol", carol.public))
    two.deliver(root, weak)
    two.here.fs.namespace.unlink(F)
    theirs = two.elsewhere()
    assert not two.here.fs.working.exists(F), "what was removed stays so until that is published"
    two.meet()
    assert two.check_kept(theirs) == (not is_strong)
    assert two.here.fs.working.exists(F) == (not is_strong)
    two.close()


def test_a_new_file_does_not_take_the_place_of_one_that_came_meanwhile(two: Two) -> None:
    two.here.save("/d/new", b"ours")
    theirs = two.elsewhere(b"theirs", "/d/new")
    assert two.here.load("/d/new") == b"ours"
    two.meet()
    assert two.here.load("/d/new") == (b"theirs" if two.check_kept(theirs, "/d/new") else b"ours")


def test_what_is_open_goes_on_from_its_own_version(two: Two) -> None:
    """Also where that has lost: whoever opens the file then has the other one."""
    handle = two.here.fs.files.open(F, os.O_RDWR)
    theirs = two.elsewhere(b"theirs, longer")
    two.here.fs.files.write(handle, b"X", 0)
    two.here.fs.files.flush(handle)
    two.meet()
    won = two.check_kept(theirs)
    assert two.here.read_handle(handle) == b"Xirst"
    assert two.here.load("/d/f") == (b"theirs, longer" if won else b"Xirst")
    two.here.fs.files.write(handle, b"Y", 1)
    two.here.close(handle)
    two.meet()
    assert two.check_kept(theirs) == won
    assert two.here.load("/d/f") == (b"theirs, longer" if won else b"XYrst")
    assert len(two.there.survey(F).conflicts()) == 1


@pytest.mark.parametrize("content", [b"first", b"ours"], ids=["as it was once", "new"])
def test_a_save_on_top_of_what_came_survives_a_kill(two: Two, content: bytes) -> None:
    """Also one that takes back what another node has changed."""
    two.elsewhere()
    two.here.save("/d/f", content)
    two.restart()
    assert two.here.load(F) == content
    two.meet()
    assert two.here.load(F) == content


def rewrite(here: Local, handle: int, content: bytes) -> None:
    """What an editor does that keeps its file open."""
    here.fs.files.truncate((), 0, handle)
    here.fs.files.write(handle, content, 0)
    here.fs.files.flush(handle)


def test_an_unchanged_save_takes_nothing_away(two: Two) -> None:
    """Who saves what they have opened has no answer to what came since."""
    handle = two.here.fs.files.open(F, os.O_RDWR)
    two.elsewhere()
    rewrite(two.here, handle, b"first")
    two.here.close(handle)
    two.meet()
    assert two.here.load(F) == b"theirs"
    assert two.there.survey(F).conflicts() == []


@pytest.fixture(params=["/d/f", "/d/g"], ids=["one name", "two names"])
def name(two: Two, request: pytest.FixtureRequest) -> tuple[bytes, ...]:
    """By which the newest version is opened."""
    if request.param != "/d/f":
        two.here.fs.namespace.make_link(path(request.param), F)
        two.meet()
    return path(request.param)


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
@pytest.mark.parametrize("content", [b"the last one", b"first"], ids=["new", "as it was once"])
def test_who_has_opened_the_newest_version_writes_over_it(
    two: Two, name: tuple[bytes, ...], content: bytes, killed: bool
) -> None:
    """Also where somebody has written to an older one meanwhile, on which that was no answer to the newest."""
    old = two.here.fs.files.open(F, os.O_RDWR)
    two.elsewhere()
    new = two.here.fs.files.open(name, os.O_RDWR)
    rewrite(two.here, old, b"of the older version")
    rewrite(two.here, new, content)
    if killed:
        two.restart()
    two.meet()
    assert two.here.load(F) == two.here.load(name) == content
    assert two.there.survey(F).conflicts() == []


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_who_has_opened_an_older_version_does_not_hide_the_newest(
    two: Two, name: tuple[bytes, ...], killed: bool
) -> None:
    """Also where somebody has written to the newest one meanwhile."""
    old = two.here.fs.files.open(F, os.O_RDWR)
    theirs = two.elsewhere()
    new = two.here.fs.files.open(name, os.O_RDWR)
    rewrite(two.here, new, b"of the newest version")
    rewrite(two.here, old, b"the last one")
    if killed:
        two.restart()
    two.meet()
    shown = b"theirs" if two.check_kept(theirs) else b"the last one"
    assert two.here.load(F) == two.here.load(name) == shown


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
@pytest.mark.parametrize("is_filled", [False, True], ids=["moved", "moved and made anew"])
@pytest.mark.parametrize("target", ["/d/f~", "/d/g"], ids=["scratch", "published"])
def test_who_has_opened_an_older_version_writes_to_the_new_name(
    two: Two, target: str, is_filled: bool, killed: bool
) -> None:
    """And not to the file that has the old name since."""
    old = two.here.fs.files.open(F, os.O_RDWR)
    two.elsewhere()
    two.here.fs.namespace.rename(F, path(target))
    if is_filled:
        two.here.save("/d/f", b"a new file")
    two.here.publish()
    if is_filled:
        two.here.save("/d/f", b"a new file, changed")
    two.here.fs.files.write(old, b"F", 0)
    two.here.close(old)
    if killed:
        two.restart()
    shown = {path(target)[-1]: b"First"}
    if is_filled:
        shown[b"f"] = b"a new file, changed"
    assert two.shown() == shown
    assert confused(two.here.fs, two.here.load) == []
    two.meet()
    assert two.shown() == shown
    assert confused(two.here.fs, two.here.load) == []


@pytest.mark.parametrize("names", [("/d/f", "/d/g"), ("/d/g", "/d/f")])
def test_who_has_opened_an_older_version_writes_to_the_name_after_an_exchange(two: Two, names: tuple[str, str]) -> None:
    two.here.save("/d/g", b"another file")
    two.meet()
    old = two.here.fs.files.open(F, os.O_RDWR)
    two.elsewhere()
    two.here.fs.namespace.rename(*map(path, names), exchange=True)
    two.here.fs.files.write(old, b"F", 0)
    two.here.close(old)
    assert two.shown() == {b"f": b"another file", b"g": b"First"}


def test_an_open_file_that_has_lost_its_name_elsewhere_goes_on_under_another_one(two: Two) -> None:
    """Although what others have made under the lost name is replaced here."""
    two.here.fs.namespace.make_link(path("/d/g"), F)
    two.meet()
    handle = two.here.fs.files.open(path("/d/g"), os.O_RDWR)
    two.there.commit(lambda author: author.remove(path("/d/g"), directory=False))
    two.elsewhere(b"another file", "/d/g")
    two.here.save("/d/new", b"yet another file")
    two.here.fs.namespace.rename(path("/d/new"), path("/d/g"))
    assert confused(two.here.fs, two.here.load) == []
    two.here.fs.files.write(handle, b"F", 0)
    two.here.close(handle)
    assert two.shown() == {b"f": b"First", b"g": b"yet another file"}


@pytest.mark.parametrize("is_drafted", [False, True])
def test_a_save_is_not_lost_to_one_that_was_made_while_an_earlier_one_was_published(two: Two, is_drafted: bool) -> None:
    """The publisher takes over what it has published of one version of an open file, and another one is pending."""
    old = two.here.fs.files.open(F, os.O_RDWR)
    two.elsewhere()
    new = two.here.fs.files.open(F, os.O_RDWR)
    rewrite(two.here, old, b"of the older version")

    def late(commit: Callable[[], Applied]) -> Applied:
        two.here.surround(None)
        if not is_drafted:
            rewrite(two.here, new, b"of the newest version")
        applied = commit()
        if is_drafted:
            rewrite(two.here, new, b"of the newest version")
        return applied

    two.here.surround(late)
    two.here.fs.publisher.publish()
    assert two.here.load(F) == b"of the newest version"
    rewrite(two.here, old, b"the last one")
    assert two.here.load(F) == b"the last one"
    two.meet()
    tips = {entry.hash for entry in two.there.survey(F).outcome.tips}
    kept = tips | {conflict.lost.hash for conflict in two.there.survey(F).conflicts()}
    assert b"the last one" in {two.there.content_at(hash) for hash in kept}
    for handle in (old, new):
        two.here.close(handle)


def test_a_removal_while_a_version_is_published_follows_that(two: Two) -> None:
    two.here.save("/d/f", b"ours")

    def late(commit: Callable[[], Applied]) -> Applied:
        two.here.surround(None)
        two.here.fs.namespace.unlink(F)
        return commit()

    two.here.surround(late)
    two.here.publish()
    two.meet()
    assert not two.here.fs.working.exists(F)
    assert two.there.survey(F).conflicts() == []


#: What is staged of a file, and how it is removed here.
REMOVALS: dict[str, tuple[Callable[[Local], object], Callable[[Local], object]]] = {
    "echo; rm": (CHANGES["echo"], CHANGES["rm"]),
    "chmod; rm": (lambda here: here.fs.metadata.set_mode(F, 0o600), CHANGES["rm"]),
    "mv; rm": (
        lambda here: here.fs.namespace.rename(F, path("/d/g")),
        lambda here: here.fs.namespace.unlink(path("/d/g")),
    ),
    "echo; mv f f~": (CHANGES["echo"], lambda here: here.fs.namespace.rename(F, path("/d/f~"))),
}


@pytest.mark.parametrize(("stage", "remove"), REMOVALS.values(), ids=REMOVALS)
@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_what_another_node_has_removed_and_this_one_removes_then_stays_away(
    two: Two, stage: Callable[[Local], object], remove: Callable[[Local], object], killed: bool
) -> None:
    stage(two.here)
    two.remove_elsewhere()
    remove(two.here)
    assert set(two.shown()) <= {b"f~"}
    if killed:
        two.restart()
    two.meet()
    assert set(two.shown()) <= {b"f~"}
    assert not {F, path("/d/g")} & set(tree_of(two.there))


@pytest.mark.parametrize("is_hidden", [False, True], ids=["", "hidden"])
def test_an_open_file_that_both_have_removed_is_written_for_nobody(two: Two, is_hidden: bool) -> None:
    fs = two.here.fs
    handle = fs.files.open(F, os.O_RDWR)
    fs.files.write(handle, b"ours", 0)
    two.remove_elsewhere()
    if is_hidden:
        hidden = path("/d/.fuse_hidden0000000000000001")
        fs.namespace.rename(F, hidden)
    else:
        fs.namespace.unlink(F)
    assert two.shown() == {}
    fs.files.write(handle, b"more", 4)
    assert two.here.read_handle(handle) == b"oursmore"
    two.here.close(handle)
    if is_hidden:
        fs.namespace.unlink(hidden)
    two.meet()
    assert two.shown() == {}


def test_a_mode_goes_with_what_came_meanwhile(two: Two) -> None:
    """It takes nothing away from that, so both are kept."""
    two.here.fs.metadata.set_mode(F, 0o600)
    two.here.fs.metadata.set_times(F, 10**18)
    two.elsewhere()
    two.meet()
    assert (two.here.load("/d/f"), two.here.mode("/d/f")) == (b"theirs", 0o600)
    assert two.there.survey(F).conflicts() == []


def test_a_mode_does_not_hide_another_one_that_came_meanwhile(two: Two) -> None:
    two.here.fs.metadata.set_mode(F, 0o600)
    two.there.commit(lambda author: author.set_attributes(F, mode=0o640))
    (entry,) = two.sent[two.there][-1].entries
    two.deliver(two.there, two.here.replica)
    two.meet()
    assert two.here.mode("/d/f") == (0o640 if two.check_kept(entry) else 0o600)


def test_a_file_is_moved_with_what_came_meanwhile(two: Two) -> None:
    """A new name takes nothing away."""
    two.here.fs.namespace.rename(F, path("/d/g"))
    two.elsewhere()
    two.meet()
    assert two.here.load("/d/g") == b"theirs"
    assert not two.here.fs.working.exists(F)


def test_a_change_by_another_name_follows_what_was_seen(two: Two) -> None:
    two.here.fs.namespace.make_link(path("/d/g"), F)
    two.meet()
    two.here.save("/d/g", b"ours")
    theirs = two.elsewhere()
    two.meet()
    won = two.check_kept(theirs)
    assert two.here.load("/d/g") == two.here.load("/d/f") == (b"theirs" if won else b"ours")


#: How a file gets another name here, by which it is written before that is published.
NAMINGS: dict[str, Callable[[Local], object]] = {
    "ln f g": lambda here: here.fs.namespace.make_link(path("/d/g"), F),
    "mv h g": lambda here: here.fs.namespace.rename(path("/d/h"), path("/d/g")),
    "mv f g": lambda here: here.fs.namespace.rename(F, path("/d/g")),
}


@pytest.mark.parametrize("named", NAMINGS.values(), ids=NAMINGS)
@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_a_change_by_a_name_that_is_new_follows_what_was_seen(
    two: Two, named: Callable[[Local], object], killed: bool
) -> None:
    two.here.fs.namespace.make_link(path("/d/h"), F)
    two.meet()
    named(two.here)
    two.here.save("/d/g", b"ours")
    theirs = two.elsewhere()
    if killed:
        two.restart()
    two.meet()
    two.check_kept(theirs)


def test_a_change_while_an_earlier_one_is_published_follows_that_by_another_name(two: Two) -> None:
    two.here.fs.namespace.make_link(path("/d/g"), F)
    two.here.save("/d/g", b"ours")

    def late(commit: Callable[[], Applied]) -> Applied:
        two.here.surround(None)
        applied = commit()
        two.here.fs.namespace.rename(path("/d/g"), path("/d/h"))
        two.here.save("/d/h", b"ours, later")
        return applied

    two.here.surround(late)
    two.here.fs.publisher.publish()
    two.meet()
    assert two.here.load(F) == two.here.load("/d/h") == b"ours, later"
    assert two.there.survey(F).conflicts() == []


def test_a_directory_made_elsewhere_survives_the_removal_of_the_one_that_was_seen(two: Two) -> None:
    two.there.commit(lambda author: author.make_directory(path("/e")))
    two.here.fs.namespace.make_directory(path("/e"), 0o755)
    two.here.publish()
    two.here.fs.namespace.remove_directory(path("/e"))
    two.deliver(two.there, two.here.replica)
    two.meet()
    assert two.here.fs.working.exists(path("/e"))


def test_a_new_file_keeps_the_directory_in_which_it_was_made(two: Two) -> None:
    CHANGES["rm -r; mkdir"](two.here)
    theirs = two.elsewhere(b"theirs", "/d/new")
    two.meet()
    assert two.check_kept(theirs, "/d/new")
    assert two.here.listing("/d").keys() == {b"new"}


def test_a_directory_goes_in_the_moment_in_which_a_file_is_made_in_it(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who makes it has it: otherwise it would stay pending for ever, since nobody could close it."""
    two.there.commit(lambda author: author.remove(F, directory=False))
    two.there.commit(lambda author: author.remove(path("/d"), directory=True))
    working, give = two.here.fs.working, two.here.fs.working.give

    def give_late(*arguments: Any, **options: Any) -> None:
        give(*arguments, **options)
        two.deliver(two.there, two.here.replica)

    monkeypatch.setattr(working, "give", give_late)
    handle = two.here.fs.files.create(path("/d/new"), 0o644)
    monkeypatch.undo()
    two.here.fs.files.write(handle, b"written", 0)
    two.here.close(handle)
    two.meet()
    assert two.shown() == {b"new": b"written"}


def test_the_mirror_asks_the_log_for_nothing(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread has none of the log's files open."""
    mirror = Mirror(two.here.fs.working, Kernel(), Path("/nowhere"))
    two.here.save("/d/f", b"ours")
    two.there.commit(lambda author: author.remove(F, directory=False))
    two.elsewhere()
    monkeypatch.setattr(two.here.fs.working, "replica", None)
    mirror.perform(F, State(Kind.FILE), State(Kind.FILE))
    monkeypatch.undo()
    two.meet()


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("is_own", [False, True])
def test_a_file_that_is_made_anew_before_a_kill_does_not_take_the_place_of_one_that_came_meanwhile(
    two: Two, is_own: bool, is_late: bool
) -> None:
    """What this node had published there before was gone when the file was made."""
    if is_own:
        two.here.fs.namespace.unlink(F)
        two.meet()
    else:
        two.remove_elsewhere()
    two.here.save("/d/f", b"anew")
    if is_late:
        two.restart()
    theirs = two.elsewhere()
    if not is_late:
        two.restart()
    two.meet()
    two.check_kept(theirs)


def test_a_journal_that_is_older_than_the_log_is_in_no_conflict_with_it(two: Two) -> None:
    """As after a power cut: what was removed then was made anew and published since."""
    two.here.fs.namespace.unlink(F)
    journal = two.here.replica.directory / DIRECTORY / JOURNAL_FILE
    records = journal.read_bytes()
    two.here.save("/d/f", b"anew")
    two.here.publish()
    journal.write_bytes(records)
    two.restart()
    assert two.here.load(F) == b"anew"
    two.meet()
    assert two.here.load(F) == b"anew"
    assert two.there.survey(F).conflicts() == []


def test_a_file_that_was_moved_where_another_node_had_removed_it_is_none_that_a_revert_brings_back(two: Two) -> None:
    """Otherwise what is written under the new name would go to the old one, too."""
    kept = two.there.attributes(F).entry
    handle = two.here.open_writer("/d/f")
    two.here.close(handle)
    two.remove_elsewhere()
    two.here.fs.namespace.rename(F, path("/d/f~"))
    two.there.commit(lambda author: author.reverter.path(F, kept))
    two.deliver(two.there, two.here.replica)
    two.here.save("/d/f~", b"ours")
    two.meet()
    assert two.shown() == {b"f": b"first", b"f~": b"ours"}
    assert not confused(two.here.fs, two.here.load)


def test_an_open_file_without_names_is_none_that_a_revert_brings_back(two: Two) -> None:
    """Somebody else had removed it, and its name was another file's before that went, too."""
    kept = two.there.attributes(F).entry
    handle = two.here.fs.files.open(F, os.O_RDWR)
    two.remove_elsewhere()
    two.here.save("/d/f", b"anew")
    two.here.fs.namespace.rename(F, path("/d/g"))
    assert two.here.fs.metadata.stat_inode(two.here.fs.files.inode_of(handle)).links == 0
    two.meet()
    two.there.commit(lambda author: author.reverter.path(F, kept))
    two.deliver(two.there, two.here.replica)
    assert two.here.fs.metadata.stat(F).links == 1
    two.here.fs.files.write(handle, b"nowhere", 0)
    two.here.close(handle)
    two.meet()
    assert two.shown() == {b"f": b"first", b"g": b"anew"}
    assert not confused(two.here.fs, two.here.load)
