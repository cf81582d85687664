"""Starting a daemon, in front or in the background."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from basefs.daemon import config, logs
from basefs.daemon.config import DEFAULT_PORT, Home, is_ip, parse_address
from basefs.daemon.notify import ServiceManager
from basefs.daemon.settings import PROFILES, Settings
from basefs.errors import BaseFSError, DaemonError, MountFailed, UsageError
from basefs.fs.fuse.binding import check_mountpoint, parse_options, unmount
from basefs.gossip.members import split_host_port
from basefs.log.keys import SigningKey
from basefs.management.again import command_line
from basefs.management.session import default_keys
from basefs.management.target import mounts

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: How a child reports that its filesystem answers; anything else on the pipe is why it does not.
_READY = b"ready"
#: The descriptor of that pipe, for the child only.
_PIPE_VARIABLE = "BASEFS_READY_FD"
#: Bytes of a key for Serf: AES-128, -192 or -256.
_SECRET_LENGTHS = (16, 24, 32)


def daemon_options(command: _Command) -> _Command:
    """The options that mount and run share."""
    options = (
        click.option(
            "-k", "--key", "keypaths", multiple=True, type=click.Path(path_type=Path), help="Key to sign with."
        ),
        click.option(
            "-b", "--bind", default=config.ALL_ADDRESSES, metavar="IP[:PORT]", help=f"Address (port: {DEFAULT_PORT})."
        ),
        click.option("--iface", "interface", help="Use the address of this network interface."),
        click.option("-j", "--join", multiple=True, metavar="IP:PORT,...", help="Nodes to join, besides /.cluster."),
        click.option("-n", "--hostname", help="This node's name in the cluster."),
        click.option("--profile", type=click.Choice(PROFILES), help="Timing of gossip (default: wan)."),
        click.option(
            "--encrypt-key-file",
            type=click.Path(path_type=Path),
            help="File with Serf's encryption key (base64 of 16, 24 or 32 bytes), the same on all nodes.",
        ),
        click.option(
            "--push/--no-push", default=None, help="Keep sessions with a few members open for news (default: yes)."
        ),
        click.option(
            "--handler",
            "handlers",
            multiple=True,
            metavar="[GLOB=]CMD",
            help="Shell command to run for each change, of the paths that GLOB names; may be given again.",
        ),
        click.option(
            "--handler-jobs", type=click.IntRange(1, 1000), default=4, show_default=True, help="How many run at a time."
        ),
        click.option(
            "--handler-timeout",
            type=click.FloatRange(0, min_open=True),
            default=60.0,
            show_default=True,
            help="Seconds after which one is ended.",
        ),
        click.option(
            "--metrics",
            metavar="IP:PORT",
            help="Serve metrics for Prometheus there, to whoever reaches that address.",
        ),
        click.option("-s", "--single-node", is_flag=True, help="Neither gossip nor sync."),
        click.option("-f", "--foreground", is_flag=True, help="Stay in front, and log to stderr."),
        click.option("-d", "--debug", is_flag=True, help="Log more."),
        click.option(
            "--log-format",
            type=click.Choice(logs.FORMATS),
            help="How to log (default: journal where systemd listens, else text).",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def launch(
    name: str,
    mountpoint: Path | None,
    *,
    keypaths: Sequence[Path],
    bind: str,
    interface: str | None,
    join: Sequence[str],
    hostname: str | None,
    profile: str | None,
    encrypt_key_file: Path | None,
    push: bool | None,
    inotify: bool = False,
    handlers: Sequence[str],
    handler_jobs: int,
    handler_timeout: float,
    metrics: str | None,
    single_node: bool,
    foreground: bool,
    debug: bool,
    log_format: str | None,
    fuse_options: Sequence[str] = (),
    uid: int | None = None,
    gid: int | None = None,
    owners: bool = False,
) -> None:
    """Check what the user asked for, then serve, or start a process that does."""
    # Imported here, since the command group imports this module for its options alone.
    from basefs.daemon.main import run
    from basefs.daemon.options import DaemonOptions
    from basefs.fs.events.rules import Rule
    from basefs.fs.events.runner import Settings as HandlerSettings

    home = Home.from_environment()
    home.existing(name)
    if owners and os.geteuid() != 0:
        raise UsageError("only root can keep owners: mount without --owners")
    if mountpoint is not None:
        _clear_dead_mount(mountpoint)
        check_mountpoint(mountpoint)
    options = DaemonOptions(
        name=name,
        mountpoint=mountpoint,
        keys=[SigningKey.load(path) for path in keypaths] or default_keys(home),
        bind=_bind(bind),
        interface=interface,
        join=[parse_address(address) for group in join for address in group.split(",") if address],
        node_name=hostname or home.node_name(),
        fuse_options=parse_options(",".join(fuse_options)),
        uid=os.geteuid() if uid is None else uid,
        gid=os.getegid() if gid is None else gid,
        keep_owners=owners,
        single=single_node,
        handlers=HandlerSettings([Rule.parse(text) for text in handlers], handler_jobs, handler_timeout),
        encrypt_key=None if encrypt_key_file is None else _read_secret(encrypt_key_file),
        settings=_settings(home, profile, push),
        inotify=inotify,
        metrics=None if metrics is None else _with_port(metrics),
    )
    pipe = os.environ.pop(_PIPE_VARIABLE, None)
    if pipe is None and not foreground:
        _start_in_background(home, name)
        return
    logs.configure(name, debug=debug, style=log_format, file=None if pipe is None else home.log_path(name))
    # A peer that hangs up is an error of its connection; the commands' default would end the whole daemon.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    ready = _Ready(None if pipe is None else int(pipe))
    try:
        run(home, options, ready.tell, ServiceManager.from_environment())
    except BaseFSError as error:
        ready.fail(str(error))
        raise


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


def _start_in_background(home: Home, name: str) -> None:
    """Run this very command again, detached, and wait until it answers.  Raises `DaemonError` with its reason."""
    log_path = home.log_path(name)
    reading, writing = os.pipe()
    environment = {**os.environ, _PIPE_VARIABLE: str(writing)}
    with log_path.open("ab") as log_file:
        child = subprocess.Popen(
            command_line(sys.argv[1:]),
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            env=environment,
            pass_fds=[writing],
            start_new_session=True,
        )
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    if answer == _READY:
        return
    child.wait()
    raise DaemonError(answer.decode("utf-8", "replace") or f"the daemon of {name} ended at once: {log_path} says why")


def _clear_dead_mount(mountpoint: Path) -> None:
    """A mount of ours whose daemon died answers with errors until it is detached; mounting again repairs it."""
    try:
        # The kernel may remember what stat(2) tells, but asks for this.
        os.statvfs(mountpoint)
    except OSError:
        if any(mount.point == mountpoint for mount in mounts()):
            unmount(mountpoint, lazy=True)


def _bind(text: str) -> tuple[str, int]:
    host, port = parse_address(text)
    if not is_ip(host):
        raise UsageError(f"-b takes an IP address of this machine, not {host!r}")
    return host, port


def _with_port(text: str) -> tuple[str, int]:
    try:
        return split_host_port(text)
    except ValueError as error:
        raise UsageError(f"--metrics takes IP:PORT: {error}") from None


def _settings(home: Home, profile: str | None, push: bool | None) -> Settings:
    """What the file of settings says, unless the command line says otherwise."""
    settings = Settings.load(home.settings_path)
    if profile is not None:
        settings = replace(settings, profile=profile)
    if push is not None:
        sessions = (settings.push_sessions or config.PUSH_SESSIONS) if push else 0
        settings = replace(settings, push_sessions=sessions)
    return settings


def _read_secret(path: Path) -> str:
    try:
        secret = path.read_text().strip()
        length = len(base64.b64decode(secret, validate=True))
    except OSError as error:
        raise MountFailed(f"cannot read the encryption key {path}: {error.strerror}") from None
    except ValueError:
        length = 0
    if length not in _SECRET_LENGTHS:
        raise UsageError(f"{path} holds no encryption key, base64 of 16, 24 or 32 bytes: 'serf keygen' prints one")
    return secret
