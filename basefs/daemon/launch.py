"""Starting a daemon, in front or in the background."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from basefs.daemon import config, logs
from basefs.daemon.api.shutdown import why_running
from basefs.daemon.config import Home, NodeAddress, is_ip, parse_address
from basefs.daemon.keyfiles import default_keys
from basefs.daemon.main import run
from basefs.daemon.mounting import check_attachable, serve_mount
from basefs.daemon.mounts import check_mountpoint, clear_dead, parse_options
from basefs.daemon.options import DaemonOptions
from basefs.daemon.settings import Settings, check_patterns, parse_size
from basefs.errors import AlreadyRunning, BaseFSError, DaemonError, MountFailed, UsageError
from basefs.fs.events.rules import Rule
from basefs.fs.events.runner import HandlerSettings
from basefs.gossip.members import split_host_port
from basefs.log.keys import SigningKey
from basefs.notify import ServiceManager

#: How a child reports that its filesystem answers; anything else on the pipe is why it does not.
_READY = b"ready"
#: Names of hosts, which may have a '_' here and there.  Serf joins "NAME/ADDRESS", so that a '/' in a name breaks the
#: address.
_NODE_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What a command line asks for, as it stands there; see `basefs mount --help`.

    `mountpoint`: `None` to run without a mount.  `push`, `profile`, `max_log_bytes`, `min_free`: `None` for what the
    settings say.  The options from `fuse_options` on are of a mount; `owners`: `None` for whether root mounts.
    """

    name: str
    mountpoint: Path | None
    keypaths: Sequence[Path]
    bind: str
    interface: str | None
    join: Sequence[str]
    hostname: str | None
    profile: str | None
    encrypt_key_file: Path | None
    push: bool | None
    never_publish: Sequence[str]
    handlers: Sequence[str]
    handler_jobs: int
    handler_timeout: float
    handler_delay: float
    metrics: str | None
    max_log_bytes: str | None
    min_free: str | None
    single_node: bool
    foreground: bool
    debug: bool
    log_format: str | None
    fuse_options: Sequence[str] = ()
    uid: int | None = None
    gid: int | None = None
    owners: bool | None = None
    serve_only: bool = False
    mount_only: bool = False


def launch(home: Home, wanted: LaunchOptions) -> bool:
    """Check what the user asked for, then serve until the end, or start a process that does.

    Returns whether it runs in the background now.  Raises `BaseFSError`.
    """
    name = wanted.name
    home.existing(name)
    if wanted.owners and not _is_root():
        raise UsageError("only root can keep owners: mount without --owners")
    if wanted.mountpoint is not None and not wanted.serve_only:
        _check_place(home, wanted, wanted.mountpoint)
    options = _daemon_options(home, wanted)
    if wanted.mount_only:
        serve_mount(home, options)
    file = None if wanted.foreground else home.log_path(name)
    ready = _Ready(None) if file is None else _go_on_in_background(name, file)
    if ready is None:
        return True
    # What a daemon makes is its owner's alone, whatever directory it is in.
    inherited = os.umask(0o077)
    options = replace(options, handlers=replace(options.handlers, umask=inherited))
    logs.configure(name, debug=wanted.debug, style=wanted.log_format, file=file)
    # A peer that hangs up is an error of its connection; the commands' default would end the whole daemon.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        run(home, options, ready.tell, ServiceManager.from_environment())
    except AlreadyRunning as error:
        why = why_running(home, name) or str(error)
        ready.fail(why)
        raise AlreadyRunning(why) from None
    except BaseFSError as error:
        ready.fail(str(error))
        raise
    finally:
        os.umask(inherited)
    return False


def _check_place(home: Home, wanted: LaunchOptions, mountpoint: Path) -> None:
    """Let a mount point be one at which the filesystem can be mounted, or is.  Raises `MountFailed`."""
    clear_dead(mountpoint)
    if wanted.mount_only or not check_attachable(home, wanted.name, mountpoint):
        check_mountpoint(mountpoint)


def _daemon_options(home: Home, wanted: LaunchOptions) -> DaemonOptions:
    rules = [Rule.parse(text) for text in wanted.handlers]
    secret = wanted.encrypt_key_file
    return DaemonOptions(
        name=wanted.name,
        mountpoint=wanted.mountpoint,
        keys=[SigningKey.load(path) for path in wanted.keypaths] or default_keys(home),
        bind=_bind(wanted.bind),
        interface=wanted.interface,
        join=[parse_address(address) for group in wanted.join for address in group.split(",") if address],
        node_name=home.node_name() if wanted.hostname is None else _node_name(wanted.hostname),
        fuse_options=parse_options(",".join(wanted.fuse_options)),
        uid=os.geteuid() if wanted.uid is None else wanted.uid,
        gid=os.getegid() if wanted.gid is None else wanted.gid,
        keep_owners=_is_root() if wanted.owners is None else wanted.owners,
        single=wanted.single_node,
        handlers=HandlerSettings(rules, wanted.handler_jobs, wanted.handler_timeout, wanted.handler_delay),
        encrypt_key=None if secret is None else _read_secret(secret),
        settings=_settings(home, wanted),
        metrics=None if wanted.metrics is None else _metrics_address(wanted.metrics),
        serve_only=wanted.serve_only,
    )


def _is_root() -> bool:
    return os.geteuid() == 0


class _Ready:
    """The end of the pipe on which a parent waits."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def tell(self) -> None:
        """The filesystem answers."""
        self._send(_READY)

    def fail(self, reason: str) -> None:
        """It never will."""
        self._send(reason.encode("utf-8", "replace"))

    def _send(self, message: bytes) -> None:
        if self._descriptor is not None:
            os.write(self._descriptor, message)
            os.close(self._descriptor)
            self._descriptor = None


def _go_on_in_background(name: str, log_path: Path) -> _Ready | None:
    """Fork a child that goes on detached from the terminal and prints into a log.

    Returns the end of its pipe in the child, and in the parent, once the filesystem answers, `None`.  Raises
    `DaemonError` in the parent with the child's reason.
    """
    log_file = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    reading, writing = os.pipe()
    # Nothing is printed by both.
    sys.stdout.flush()
    sys.stderr.flush()
    # A fork alone, since an exec would import everything once more.  No thread runs yet.
    child = os.fork()
    if child == 0:
        _detach(log_file, writing)
        return _Ready(writing)
    os.close(log_file)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    if answer == _READY:
        return None
    os.waitpid(child, 0)
    raise DaemonError(answer.decode("utf-8", "replace") or f"the daemon of {name} ended at once: {log_path} says why")


def _detach(log_file: int, pipe: int) -> None:
    """Leave the terminal, and close what the caller of the command may wait for, but for a pipe."""
    os.setsid()
    # Another filesystem that is mounted there can be unmounted.
    os.chdir("/")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for standard in (1, 2):
        os.dup2(log_file, standard)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor not in (0, 1, 2, pipe):
            # The one that listed them is closed already.
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _bind(text: str) -> NodeAddress:
    address = parse_address(text)
    if not is_ip(address.host):
        raise UsageError(f"-b takes an IP address of this machine, not {address.host!r}")
    return address


def _node_name(text: str) -> str:
    if not _NODE_NAME.fullmatch(text):
        raise UsageError(f"{text!r} is not a node name: use up to 128 letters, digits, '.', '_' and '-'")
    return text


def _metrics_address(text: str) -> tuple[str, int]:
    """An address for metrics, which have no password: of this machine alone unless another one is named."""
    try:
        return split_host_port(text if ":" in text else f"127.0.0.1:{text}")
    except ValueError as error:
        raise UsageError(f"--metrics takes PORT or IP:PORT: {error}") from None


def _settings(home: Home, wanted: LaunchOptions) -> Settings:
    """What the file of settings says, unless the command line says otherwise; it adds names that stay here."""
    settings = Settings.load(home.settings_path)
    more = check_patterns(wanted.never_publish)
    settings = replace(settings, never_publish=settings.never_publish + more)
    if wanted.profile is not None:
        settings = replace(settings, profile=wanted.profile)
    if wanted.push is not None:
        sessions = (settings.push_sessions or config.PUSH_SESSIONS) if wanted.push else 0
        settings = replace(settings, push_sessions=sessions)
    if wanted.max_log_bytes is not None:
        settings = replace(settings, max_log_bytes=parse_size(wanted.max_log_bytes))
    if wanted.min_free is not None:
        settings = replace(settings, min_free=parse_size(wanted.min_free))
    return settings


def _read_secret(path: Path) -> str:
    try:
        secret = path.read_text().strip()
        length = len(base64.b64decode(secret, validate=True))
    except OSError as error:
        raise MountFailed(f"cannot read the encryption key {path}: {error.strerror}") from None
    except ValueError:
        length = 0
    # AES-128, -192 or -256.
    if length not in (16, 24, 32):
        raise UsageError(f"{path} holds no encryption key, base64 of 16, 24 or 32 bytes: 'serf keygen' prints one")
    return secret
