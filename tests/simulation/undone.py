"""`python -m tests.simulation.undone`: takes mends back in a copy of the code, and looks for a seed that notices.

A mend that no seed notices shows what the simulation does not play.  The results are in docs/simulation.md.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import click

from tests.simulation.faults import Plan
from tests.simulation.scenes import Scene
from tests.support.project import ROOT

_IS_SET_WITHIN = """\
    if seconds is None:
        return await event.wait()
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waiting], timeout=seconds)
    finally:
        waiting.cancel()
    return event.is_set()
"""
_WAIT_FOR = """\
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except asyncio.TimeoutError:
        pass
    return event.is_set()
"""


_RENEWS = """\
        await asyncio.sleep(self._rng.uniform(0.0, 5.0))
        makers = await asyncio.to_thread(self._replica.root_keys)
        signer = self._signer(makers)
        # Without such a key of its own this node waits for one that has.
        if self._is_due(makers) and signer is not None:
"""
_FORGETS = """\
        makers = await asyncio.to_thread(self._replica.root_keys)
        signer = self._signer(makers)
        await self._keep(replace(self._kept, known_to=self._membership.in_gossip))
        await asyncio.sleep(self._rng.uniform(0.0, 5.0))
        if signer is not None:
"""


@dataclass(frozen=True, slots=True)
class Mend:
    """What was mended, in one place.

    Attributes:
        name: in a word or two.
        file: below `basefs`.
        now: the code.
        before: the code as it was, or as it would be without the mend.
        first: the seed that noticed it last, which is played first.
        needs: words of the plan or scene that a seed must have so that the code matters.
    """

    name: str
    file: str
    now: str
    before: str
    first: int = 0
    needs: str = ""

    def fits(self, seed: int) -> bool:
        """Whether a seed has what is needed."""
        plan = Plan.draw(seed)
        words = f"{plan}, {Scene.draw(plan)}"
        return all(word in words for word in self.needs.split())


#: Plays seeds until one fails, in a copy of the code.
_PROGRAM = """
import sys
from tests.simulation.run import play
for played, seed in enumerate(map(int, sys.argv[1:]), 1):
    if failure := play(seed).failure:
        print(f"seed {seed} ({played} played): {failure}")
        break
"""

MENDS = (
    Mend(
        "told to wait when settled",
        "sync/session/states.py",
        "            SessionEvent.WAIT: SessionState.SETTLED,  # the initiator asks later\n",
        "",
        12,
    ),
    Mend(
        "waited for a parent",
        "log/intake.py",
        "is_theirs = sender == self._peer",
        "is_theirs = True",
        first=23,
        needs="stranger",
    ),
    Mend(
        "overtakes its grant",
        "sync/session/result.py",
        "return self.rejected > self.ungranted or self.ungranted > MAX_UNGRANTED",
        "return self.rejected > 0",
    ),
    Mend(
        "overtaken peer",
        "sync/session/protocol.py",
        "return (Refusal.ENOUGH, Reason.ENOUGH, text) if overtaken else",
        "return (Refusal.ENOUGH, Reason.ENOUGH, text) if False else",
        needs="strict large",
    ),
    Mend(
        "read after the end",
        "replication/propagation.py",
        "if not self._stopped and self._replica.missing_blocks(1)",
        "if self._replica.missing_blocks(1)",
        first=29,
        needs="gossip",
    ),
    Mend("lost cancellation", "tasks.py", _IS_SET_WITHIN, _WAIT_FOR, needs="kill"),
    Mend(
        "link that rests on nothing",
        "view/walk.py",
        "if authority.may_grant(entry.fingerprint) and self.states[entry.hash].complete:",
        "if authority.may_grant(entry.fingerprint):",
        needs="holder",
    ),
    Mend(
        "own idle time",
        "sync/session/protocol.py",
        "min(now - self._looked_at, self._longest)",
        "now - self._looked_at",
    ),
    Mend(
        "greets too late",
        "sync/session/result.py",
        "return self.reason is Reason.RUBBISH or",
        "return self.reason in (Reason.RUBBISH, Reason.TIMEOUT) or",
        first=2898,
        needs="tiny",
    ),
    Mend(
        "blocks are arriving",
        "sync/session/protocol.py",
        "settled = log.same_entries(theirs.log) and",
        "settled = root == their_root and",
        needs="asks",
    ),
    Mend(
        "listed what has come since",
        "sync/session/requests.py",
        'if isinstance(wish, PathReq) and line.startswith(b"LS "):',
        "if False:",
        needs="strict",
    ),
    Mend(
        "not written yet",
        "sync/net/transport.py",
        "return None if push is not None and push.owes else self._core.counters.bytes_sent",
        "return self._core.counters.bytes_sent",
    ),
    Mend(
        "behind its end",
        "sync/net/transport.py",
        "sender.cancel()  # or it would go on behind the end",
        "pass  # it goes on behind the end",
    ),
    Mend(
        "entries wait for blocks",
        "sync/net/transport.py",
        "self._connection.read(1.0 if core.wants_pause else None)",
        "self._connection.read(None)",
    ),
    Mend(
        "comes while the server stops",
        "sync/net/server.py",
        "        for _ in range(5):\n            await asyncio.sleep(0)\n",
        "",
        needs="restart",
    ),
    Mend(
        "pulls after the end",
        "replication/puller.py",
        "        self._stopped = True\n        self._cancel()\n",
        "        self._cancel()\n",
        first=1,
        needs="restart",
    ),
    Mend(
        "never answers",
        "replication/scheduler.py",
        "        self._meet(pull.peer, now)\n        if pull.peer == self._asked_last",
        "        if pull.peer == self._asked_last",
        needs="deaf gossip alone",
    ),
    Mend(
        "two answers to one question",
        "view/resolution.py",
        "        self._found.setdefault(place.mkdir, []).append(known)\n",
        "",
        needs="holder",
    ),
    Mend(
        "keys of all branches",
        "view/tree.py",
        "            valid.append(node.outcome.elsewhere)\n",
        "            pass\n",
        needs="holder",
    ),
    Mend(
        "revert that a link names",
        "view/crowd.py",
        "return Impact.TAKEN if placed.entry.hash in self._named else Impact.IDLE",
        "return Impact.IDLE",
        needs="holder",
    ),
    Mend(
        "link keeps a key",
        "view/keyholder.py",
        "            if not ours:\n                # A key that may write at a path may leave a link in the place of"
        " the file that grants hang on.\n                self._require_place(node)",
        "            self._require_place(node)",
        needs="symlink",
    ),
    Mend(
        "renewal is lost by a kill",
        "daemon/gossipkeys.py",
        _RENEWS,
        _FORGETS,
        first=97,
        needs="closed blackout",
    ),
    Mend(
        "key of a revoked maker",
        "daemon/gossipkeys.py",
        "(is_valid, other.key) > (mine.is_valid(identity, makers), mine.key)",
        "other.key > mine.key",
        needs="closed",
    ),
    Mend(
        "key whose maker may make none",
        "daemon/gossipkeys.py",
        "return is_orphaned or self._has_leaked()",
        "return self._has_leaked()",
        first=2218,
        needs="closed",
    ),
    Mend(
        "logs of members that gossip does not reach",
        "daemon/gossipkeys.py",
        "                self._compare(address)\n",
        "                pass\n",
        needs="closed expel",
    ),
    Mend(
        "keys are exchanged beside renewals",
        "daemon/gossipkeys.py",
        "_TOLD_AT_ONCE, _TELL_SECONDS = 16, 3.0",
        "_TOLD_AT_ONCE, _TELL_SECONDS = 16, None",
        first=5761,
        needs="closed expel",
    ),
    Mend(
        "revokes wait for no share",
        "daemon/looks.py",
        "        await asyncio.sleep(min(rest, for_revokes))\n",
        "        await asyncio.sleep(rest)\n",
        first=102,
        needs="closed disk",
    ),
    Mend(
        "revoke during the handshake",
        "sync/net/transport.py",
        "if trusted is not None and self.key not in trusted:",
        "if False:",
        needs="closed",
    ),
    Mend(
        "waits in memory",
        "replica/replica.py",
        "                batch.take_held(wanted)\n",
        "",
        needs="holder",
    ),
    Mend(
        "receipt of a publication",
        "fs/staging/journal.py",
        "        return commit(receipt=receipt)\n",
        "        return commit()\n",
        first=3532,
        needs="mount",
    ),
    Mend(
        "spool file of a name",
        "fs/staging/journal.py",
        "self._held = {path for path in superfluous if path.name in needed}",
        "self._held = set()",
        first=1759,
        needs="mounts crash",
    ),
    Mend(
        "record of a close",
        "fs/staging/workingset.py",
        "            self.journal.put_inode(inode, empty=empty)",
        "            pass",
        first=3532,
        needs="mount",
    ),
    Mend(
        "place that another node has taken away",
        "fs/namespace.py",
        "            working.leave_home(held)\n",
        "",
        first=219,
        needs="mounts",
    ),
    Mend(
        "open file that has lost its last name",
        "fs/staging/workingset.py",
        "                self._part(stale)\n",
        "                stale.unlinked = True\n",
        first=4160,
        needs="mounts",
    ),
    Mend(
        "copy of a spool that a record has",
        "fs/staging/workingset.py",
        "        elif inode.spool.is_recorded:\n",
        "        elif False:\n",
        first=75,
        needs="mount",
    ),
    Mend(
        "save that takes another change back",
        "fs/staging/replay.py",
        "if is_same and found.inode.base in (before.inode.base, before.replaced):",
        "if is_same:",
        needs="mount",
    ),
    Mend(
        "torn spool file",
        "fs/staging/spool.py",
        "if spool._size == size and (checksum is None or checksum == spool._check()):",
        "if spool._size == size:",
        needs="mount",
    ),
    Mend(
        "removed by two nodes",
        "fs/staging/workingset.py",
        "is MISSING and self._has_home(inode, inode.home):",
        "is MISSING:",
        first=111,
        needs="mounts",
    ),
    Mend(
        "version of a change",
        "fs/publish/drafts.py",
        "        versions = step.seen\n",
        "        versions = {}\n",
        first=218,
        needs="mounts",
    ),
    Mend(
        "version of a change by a new name",
        "fs/publish/plan.py",
        "        step.seen = seen\n",
        "        step.seen = {path: seen[path] for path in step.names}\n",
        first=2848,
        needs="mounts",
    ),
    Mend(
        "loses its name in portions",
        "fs/publish/plan.py",
        "        if loses:\n",
        "        if False:\n",
        first=2602,
        needs="mounts",
    ),
    Mend(
        "changes of one plan",
        "fs/publish/publisher.py",
        "                        rebase(working, portion)\n",
        "                        rebase(working, [] if portion[0].seen else steps)\n",
        needs="mounts",
    ),
    Mend(
        "names from the origin",
        "view/tree.py",
        "self._names_at(node.path_id if origin is None else origin.path_id,",
        "self._names_at(node.path_id,",
        first=370,
        needs="mounts",
    ),
    Mend(
        "warns that the key has leaked",
        "daemon/gossipkeys.py",
        "        await self._warn_if_due()\n",
        "",
        first=136,
        needs="closed",
    ),
    Mend(
        "members of a removed directory",
        "view/grants.py",
        "placed = store.get(made) if rest else None",
        "placed = None",
        needs="grant remove",
    ),
    Mend(
        "gossip on a full disk",
        "replication/propagation.py",
        "        except StoreError as error:\n            if isinstance(error, NoSpace)",
        "        except ZeroDivisionError as error:\n            if isinstance(error, NoSpace)",
        needs="full",
    ),
    Mend(
        "number of a file made anew",
        "fs/publish/outcome.py",
        "carry(inode.number, inode.origin, attributes)",
        "carry(inode.number, None, attributes)",
        first=215,
        needs="mounts",
    ),
    Mend(
        "number of an exchanged file",
        "fs/staging/workingset.py",
        "            self.identities.part(inode.origin)\n",
        "            pass\n",
        first=1907,
        needs="mounts",
    ),
    Mend(
        "number of a moved directory",
        "fs/namespace.py",
        "carry(number, origin, moved)",
        "carry(number, None, moved)",
        first=99,
        needs="mounts rename",
    ),
    Mend(
        "number of a hard link over a kill",
        "fs/staging/workingset.py",
        "        inode.number = self.identities.number(inode.origin)\n",
        "",
        first=264,
        needs="mounts crash",
    ),
    Mend(
        "home of a hard link over a kill",
        "fs/staging/workingset.py",
        "            self.journal.put_home(inode)\n",
        "            pass\n",
        needs="mounts crash",
    ),
    Mend(
        "removal of another name",
        "view/observed.py",
        "if not is_here and entry.action is Action.DELETE:",
        "if False:",
        needs="mounts link",
    ),
    Mend(
        "commits of a killed process",
        "log/database.py",
        "        self._unsynced = True\n        with contextlib",
        "        self._unsynced = False\n        with contextlib",
        needs="kill power",
    ),
)


@click.command()
@click.option("--seeds", default=50, show_default=True, help="Seeds to play for each mend at the most.")
@click.argument("names", nargs=-1)
def main(seeds: int, names: tuple[str, ...]) -> None:
    """Take each mend back, or those with these NAMES, and play seeds until one fails."""
    for mend in MENDS:
        if not names or mend.name in names:
            click.echo(f"{mend.name}: {_hunt(mend, seeds)}")


def _hunt(mend: Mend, seeds: int) -> str:
    with tempfile.TemporaryDirectory(prefix="undone-") as directory:
        for part in ("basefs", "tests"):
            # With what is compiled of them, but for the file that changes.
            shutil.copytree(ROOT / part, Path(directory, part))
        file = Path(directory, "basefs", mend.file)
        text = file.read_text(encoding="utf-8")
        assert text.count(mend.now) == 1, f"{mend.name}: {mend.file} is not what it was"
        file.write_text(text.replace(mend.now, mend.before), encoding="utf-8")
        other = (seed for seed in count() if seed != mend.first)
        order = map(str, [*[mend.first] * bool(mend.first), *islice(filter(mend.fits, other), seeds)][:seeds])
        failed = _play(Path(directory), order)
    if not failed or not _play(ROOT, [failed.split()[1]]):
        return failed or f"none of {seeds} seeds"
    return f"{failed}, also with the mend"


def _play(directory: Path, seeds: Iterable[str]) -> str:
    """The first of the seeds that fails with the code of a directory, and why; empty if none does."""
    command = [sys.executable, "-c", _PROGRAM, *seeds]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
