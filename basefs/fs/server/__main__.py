"""The mount server's process, which the daemon or the service manager starts."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

if not getattr(sys.flags, "safe_path", False):
    # The modules beside this one are no modules of the top.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from basefs.errors import BaseFSError, MountFailed
from basefs.fs.channel import DaemonLink
from basefs.fs.disk import Disk
from basefs.fs.jobs import JobResult, TreeJob
from basefs.fs.server.device import (
    Device,
    forbid_following,
    forbid_writing,
    mount,
    unmount,
)
from basefs.fs.server.passthrough import Passthrough, ShownOwners
from basefs.fs.server.performer import Performer
from basefs.fs.server.rights import Rights
from basefs.notify import ServiceManager

log = logging.getLogger(__name__)

#: Seconds for which one thread may keep the others from running.
_SWITCH_SECONDS = 0.0005
#: Seconds in which the kernel ends a mount that nobody uses.
_END_SECONDS = 1.0
#: Signals that a thread waits for.  Handlers run in the main thread, and one that arrives just before that thread waits
#: for the kernel would run after the next request, which may never come.
_BLOCKED = frozenset({signal.SIGTERM})


class Server:
    """One mount, and the orders of a daemon about it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Mount.  Raises `MountFailed`, `OSError`."""
        options = [option for option in arguments.options.split(",") if option]
        read_only = "ro" in options
        options = [option for option in options if option not in ("ro", "rw")]
        self._manager = ServiceManager.from_environment()
        self._mountpoint: Path = arguments.mountpoint
        self._over = threading.Event()
        self._rights = Rights(arguments.tree / "rights.json")
        disk = Disk(arguments.tree, cached=True)
        self._device: Device = mount(self._mountpoint, arguments.name, options)
        try:
            if "nosymfollow" in options:
                # Before the first request is answered, so that no link is followed.
                forbid_following(self._mountpoint)
            self._link = DaemonLink(arguments.socket, self._mountpoint, self)
        except (BaseFSError, OSError):
            unmount(self._mountpoint, lazy=True)
            raise
        self._tree = Passthrough(
            disk,
            self._rights,
            ShownOwners(arguments.uid, arguments.gid, keeps=arguments.keep_owners),
            self._link.changed,
            self._link.attribute,
            self._device.reply,
            read_only=read_only,
            unlisted=frozenset(map(os.fsencode, arguments.hide)),
        )
        self._performer = Performer(self._tree, self._device, self._mountpoint, self._link.changed_after)
        if read_only:
            forbid_writing(self._mountpoint)

    def serve(self) -> None:
        """Serve until the mount has ended.  Raises `MountFailed`: the kernel is too old."""
        # Ctrl-C is for the daemon, and SIGHUP for nobody.
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        try:
            self._device.serve(self._performer.operations(), self._on_ready)
        except MountFailed:
            unmount(self._mountpoint, lazy=True)
            raise
        finally:
            self._over.set()
            self._link.close()

    def _on_ready(self) -> None:
        self._performer.start()
        threading.Thread(target=self._tree.sync, name="sync", daemon=True).start()
        self._link.start()
        print("ready", flush=True)  # noqa: T201
        self._manager.ready()
        threading.Thread(target=self._wait_for_signal, name="signals", daemon=True).start()

    def _wait_for_signal(self) -> None:
        signal.sigwait(_BLOCKED)
        self._unmount()

    def writing(self) -> Iterable[int]:
        """Inodes that are being written to."""
        return self._tree.nodes.open_for_writing()

    def rights(self, rights: Mapping[bytes, int]) -> None:
        """Where this node may write from now on."""
        with self._tree.turn:
            self._rights.replace(rights)
        self._rights.keep()
        self._performer.forget_modes()

    def perform(self, jobs: Sequence[TreeJob], seen: int, answer: Callable[[Sequence[JobResult]], None]) -> None:
        """Do jobs."""
        self._performer.perform(jobs, seen, answer)

    def room(self, has: bool) -> None:
        """Whether there is room for more on the disk."""
        self._tree.room = has

    def stop(self) -> None:
        """Unmount, also while the mount is in use, and end."""
        threading.Thread(target=self._unmount, daemon=True).start()

    def _unmount(self) -> None:
        try:
            unmount(self._mountpoint, lazy=False)
            if self._over.wait(_END_SECONDS):
                return
        except MountFailed:
            with contextlib.suppress(MountFailed):
                unmount(self._mountpoint, lazy=True)
        # Whoever has files open there keeps the mount alive, and so does a mount namespace with a copy of it; this
        # process need not wait.
        self._link.close()
        os._exit(0)


def main() -> None:
    """Mount, say so on stdout, and serve."""
    parser = argparse.ArgumentParser(prog="basefs.fs.server", description=__doc__)
    parser.add_argument("--tree", type=Path, required=True, help="directory that holds tree and incoming")
    parser.add_argument("--socket", type=Path, required=True, help="where a daemon connects")
    parser.add_argument("--name", required=True)
    parser.add_argument("--mountpoint", type=Path, required=True)
    parser.add_argument("--options", default="", help="FUSE's mount options")
    parser.add_argument("--uid", type=int, default=os.geteuid(), help="owner of everything unless owners are kept")
    parser.add_argument("--gid", type=int, default=os.getegid())
    parser.add_argument("--hide", action="append", default=[], help="a name at the top that is not listed")
    parser.add_argument("--keep-owners", action="store_true")
    arguments = parser.parse_args()
    # Until the mount is ready, so that none is left behind; and in fusermount3, since a service manager signals all
    # processes of a service, those that have just been started as well.
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s mount: %(message)s", level=logging.INFO)
    sys.setswitchinterval(_SWITCH_SECONDS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        Server(arguments).serve()
    except (BaseFSError, OSError) as error:
        print(f"failed: {error}", flush=True)  # noqa: T201
        sys.exit(1)


if __name__ == "__main__":
    main()
