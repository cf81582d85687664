"""One run of a `serf agent` subprocess: start, connect, stop.  Restarting is the service's business.

1. The agent dies with us, even if we are killed: the kernel sends it SIGKILL when the *thread* that started it ends
   (PR_SET_PDEATHSIG).  So `start` must be called from a thread that lives as long as the daemon: the event loop's.
   SIGKILL and not SIGTERM, because a node that crashed has failed, not left: the others must go on looking for it.
2. It runs in a session of its own: Ctrl-C in our terminal reaches us, and we stop it in good order.
3. Where there is an account for it, it runs as that user.
4. Secrets go through a file of mode 0600, never through argv or the environment.
5. Every run has a new RPC port (the system's choice) and a new random RPC key.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import secrets
import signal
import socket
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path

from basefs.errors import AgentError
from basefs.gossip.binary import find_serf
from basefs.gossip.client import Client
from basefs.gossip.config import CONNECT_TIMEOUT, AgentConfig, Keyring, write_config

log = logging.getLogger(__name__)
#: Where the agent's own output goes.
serf_log = logging.getLogger("basefs.serf")


#: Bytes of memory that the agent may have, beyond which it ends and is started again.  It takes 20 MiB, and some
#: kilobytes for each member; a local user who connects to its RPC port could have it take all that the machine has.
MOST_MEMORY = 256 * 1024 * 1024


# Runs in the child between fork and Serf.  A `preexec_fn` would run Python in a copy of a process with other threads,
# where any lock may be held for ever; a fresh interpreter that becomes Serf by exec costs 15 ms and has no such trap.
# Another user comes first, since that clears what prctl sets.  The parent may have died before prctl: then getppid is
# no longer the number we were given.
_GUARD = """
import ctypes, os, resource, signal, sys
uid, gid = int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[4]),) * 2)
if uid:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execv(sys.argv[5], sys.argv[5:])
"""

_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "ERROR": logging.ERROR,
}
#: Warnings of normal events: a query that has all its answers before its time is over, and members that remember the
#: previous agent.
_EXPECTED = ("agent.ipc: Failed to stream query end to", "memberlist: Refuting an alive message for")
_LEVEL = re.compile(r"^[\d/]+ [\d:.]+ \[(\w+)\] +(.*)$")


class Agent:
    """A running agent, or one that has ended.  Made by `start`."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        port: int,
        auth_key: str,
        config_path: Path,
        keyring: Keyring | None,
    ) -> None:
        """`keyring`: what it encrypts with; `None`: nothing."""
        self._process = process
        self._config_path = config_path
        self.keyring = keyring
        self.rpc_port = port
        self.auth_key = auth_key
        #: Set once we have asked the agent to end: its complaints are then expected, and logged as INFO at most.
        self.ending = False
        # For the message that says why the agent died.
        self._lines: deque[str] = deque(maxlen=5)
        self._output = asyncio.get_running_loop().create_task(self._log_output(), name="serf-output")

    @classmethod
    async def start(cls, config: AgentConfig, rundir: Path) -> Agent:
        """Start an agent; `rundir` gets its configuration.  Raises AgentError if it cannot even be started."""
        binary = find_serf(config.serf_path)
        port = _free_port()
        auth_key = secrets.token_hex(16)
        account = config.account
        if account is not None and not account.may_run(binary):
            log.warning("Serf runs as root, since other users cannot run %s: install it where they can", binary)
            account = None
        uid, gid = (0, 0) if account is None else (account.uid, account.gid)
        try:
            rundir.mkdir(mode=0o700, parents=True, exist_ok=True)
            if config.snapshot_path is not None:
                config.snapshot_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = write_config(rundir, config.as_serf(port, auth_key, rundir), None if account is None else gid)
            keyring = None if config.encrypt_key is None else Keyring(rundir, config.encrypt_key)
            if keyring is not None:
                keyring.write(account)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), str(uid), str(gid), str(MOST_MEMORY)),
                *(binary, "agent", "-config-file", str(path)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                limit=65536,
            )
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise AgentError(f"the disk that holds {rundir} is full: free some space") from error
            raise AgentError(f"the Serf agent cannot be started: {error}") from error
        return cls(process, port, auth_key, path, keyring)

    @property
    def pid(self) -> int:
        """The agent's process number."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives, as far as we know."""
        return self._process.returncode is None

    async def wait(self) -> str:
        """Wait for the agent to end; returns one line with the reason and its last output."""
        status = await self._process.wait()
        await asyncio.wait([self._output], timeout=1.0)
        if status == -signal.SIGKILL:
            # It had no time to say why.
            return f"the Serf agent was killed by signal {-status}"
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        said = "; ".join(self._lines)
        return f"the Serf agent {how}" + (f" ({said})" if said else "")

    async def connect(self, timeout: float = CONNECT_TIMEOUT) -> Client:
        """An authenticated RPC connection, as soon as the agent accepts one.

        Raises AgentError if the agent ends meanwhile or does not answer in time (seconds).
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            try:
                return await Client.connect("127.0.0.1", self.rpc_port, self.auth_key, max(deadline - loop.time(), 0.1))
            except AgentError as error:
                if not self.running:
                    raise AgentError(await self.wait()) from error
                if loop.time() >= deadline:
                    raise
            # Wakes up early if the agent ends: the most common reason (port in use) is then reported at once.
            ended = asyncio.ensure_future(self._process.wait())
            await asyncio.wait([ended], timeout=0.02)
            ended.cancel()

    async def stop(self, patience: float = 4.0) -> None:
        """End the agent: SIGTERM (it leaves the cluster), and SIGKILL after `patience` seconds.  Safe to call again.

        Serf gives itself 3 s to leave.
        """
        await self._end(signal.SIGTERM, patience)

    async def kill(self) -> None:
        """End the agent at once, without leaving the cluster.  Safe to call again."""
        await self._end(signal.SIGKILL, 0.0)

    async def _end(self, number: signal.Signals, patience: float) -> None:
        self.ending = True
        try:
            if self.running:
                with suppress(ProcessLookupError):
                    self._process.send_signal(number)
                if number is not signal.SIGKILL:
                    await asyncio.wait([asyncio.ensure_future(self._process.wait())], timeout=patience)
        finally:
            # Also when we are cancelled: no way out of here leaves the agent behind.
            if self.running:
                with suppress(ProcessLookupError):
                    self._process.kill()
        await self._process.wait()
        await asyncio.wait([self._output], timeout=1.0)
        self._output.cancel()
        with suppress(OSError):
            self._config_path.unlink(missing_ok=True)

    async def _log_output(self) -> None:
        assert self._process.stdout is not None
        level = logging.DEBUG
        while True:
            try:
                raw = await self._process.stdout.readline()
            except ValueError:
                continue  # a line over the limit: asyncio has thrown it away
            if not raw:
                return
            level, text = parse_line(raw.decode("utf-8", "replace"), level)
            if text:
                self._lines.append(text)
                serf_log.log(min(level, logging.INFO) if self.ending else level, "%s", text)


def parse_line(line: str, previous: int = logging.DEBUG) -> tuple[int, str]:
    """Level and text of a line of the agent's output.  `previous`: the level of the line before, for continued ones."""
    line = line.strip()
    match = _LEVEL.match(line)
    if match is not None:
        level = logging.DEBUG if match[2].startswith(_EXPECTED) else _LEVELS.get(match[1], logging.INFO)
        return level, match[2]
    if line.startswith("==>"):
        return logging.DEBUG, line[3:].strip()
    return previous, line


def _free_port() -> int:
    # Another process may take it before Serf does.  Serf then ends, and the next run tries another one.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
