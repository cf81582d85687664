"""Keeps one Serf agent and one RPC connection alive.

1. One task owns both.  When either breaks, the task starts over, after RESTART_MIN seconds at first and RESTART_MAX at
   most, and logs the reason as a WARNING.  No other code starts an agent.
2. A replaced agent is killed, so that other nodes see a failure and a return instead of a leave.  It leaves only before
   `stop`, and before it returns with another address, which makes it another member.
3. Whatever happens, cancellation included, no agent outlives `stop`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from basefs.errors import AgentError
from basefs.gossip.agent import Agent
from basefs.gossip.client import Client
from basefs.gossip.config import AgentConfig
from basefs.tasks import cancel

log = logging.getLogger(__name__)

#: Seconds before the first restart, and at most.  Short enough to go unnoticed, long enough not to load a machine on
#: which Serf cannot start at all.  A run of RESTART_MAX seconds counts as healthy, and the next restart is a first one.
RESTART_MIN = 0.2
RESTART_MAX = 30.0


class Supervisor:
    """Runs `serve` on each new connection; `serve` works until something breaks, and raises or returns the reason.

    `serve` calls `ready` once it is subscribed; `connected` is set from then until the connection is lost.
    """

    def __init__(
        self,
        config: AgentConfig,
        rundir: Path,
        serve: Callable[[Client], Coroutine[Any, Any, str]],
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._rundir = rundir
        self._serve = serve
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._agent: Agent | None = None
        self._replacing = False
        self.connected = asyncio.Event()
        self.restarts = 0
        self.last_error = "the Serf agent does not answer"

    @property
    def agent_pid(self) -> int | None:
        """The process number of the agent, None while there is none."""
        return self._agent.pid if self._agent is not None and self._agent.running else None

    async def start(self, timeout: float) -> None:
        """Start, and wait until events flow.  Raises AgentError with the agent's own reason after `timeout` seconds."""
        if self._task is not None:
            raise AgentError("the Serf agent of this node is supervised already")
        self._task = asyncio.get_running_loop().create_task(self._run(), name="serf-supervisor")
        connected = asyncio.ensure_future(self.connected.wait())
        try:
            await asyncio.wait([connected], timeout=timeout)
            if not self.connected.is_set():
                raise AgentError(self.last_error)
        except BaseException:
            await self.stop(None)
            raise
        finally:
            connected.cancel()

    async def stop(self, farewell: Callable[[Client], Awaitable[None]] | None) -> None:
        """Call `farewell`, leave the cluster, end the agent.  Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        was_connected = self.connected.is_set()
        self.connected.clear()
        agent, self._agent = self._agent, None
        if agent is None:
            return
        try:
            if was_connected and agent.running:
                await self._leave(agent, farewell)
        finally:
            await agent.stop()

    def configure(self, config: AgentConfig) -> None:
        """Use another configuration for the next agent, whenever that is started."""
        self._config = config

    async def replace(self, config: AgentConfig, *, leaves: bool = False) -> None:
        """Continue with another configuration: the running agent ends, as in a crash, and the next one uses it.

        `leaves`: end it in good order instead, which takes 2 to 3 s if other nodes run.
        """
        self.configure(config)
        # When it has left there may be another one already.
        agent = self._agent
        if agent is not None and agent.running:
            self._replacing = True
            if leaves:
                await self._leave(agent, None)
            await agent.kill()

    async def restore_keys(self) -> None:
        """Start the agent again where it has other keys than it was started with."""
        agent = self._agent
        if agent is not None and agent.running and agent.keyring is not None and agent.keyring.is_changed:
            log.warning("a member has changed the keys of Serf: starting it again with the right one")
            await self.replace(self._config)

    async def _leave(self, agent: Agent, farewell: Callable[[Client], Awaitable[None]] | None) -> None:
        try:
            async with await agent.connect(self._config.connect_timeout) as client:
                if farewell is not None:
                    await farewell(client)
                agent.ending = True
                await client.leave()
        except AgentError as error:
            log.info("cannot leave the Serf cluster in good order: %s", error)
        # The agent ends by itself after a leave, also after one that failed.
        # It takes milliseconds; a SIGTERM meanwhile makes it 3 s.
        await asyncio.wait([asyncio.ensure_future(agent.wait())], timeout=3.0)

    async def dial(self) -> Client:
        """One more connection to the agent.  Raises AgentError while there is none."""
        if self._agent is None or not self.connected.is_set():
            raise AgentError("the Serf agent is not running at the moment: try again")
        return await self._agent.connect(self._config.connect_timeout)

    async def _run(self) -> None:
        delay = RESTART_MIN
        while True:
            started = self._clock()
            try:
                await self._run_agent()
            except AgentError as error:
                self.last_error = str(error)
            except Exception:
                # A bug of ours, and logged as one; a filesystem without gossip until a restart would be worse.
                log.exception("serving the Serf agent failed unexpectedly")
                self.last_error = "serving the Serf agent failed"
            self.connected.clear()
            if self._clock() - started >= RESTART_MAX:
                delay = RESTART_MIN
            if self._replacing:
                self._replacing, delay = False, RESTART_MIN
                continue
            self.restarts += 1
            log.warning("Serf agent failed, restarting in %.1f s: %s", delay, self.last_error)
            await asyncio.sleep(delay)
            delay = min(delay * 2, RESTART_MAX)

    async def _run_agent(self) -> None:
        """One life of the agent.  Raises AgentError, saying how it ended; if cancelled, leaves the agent to `stop`."""
        self._agent = agent = await Agent.start(self._config, self._rundir)
        try:
            while True:
                async with await agent.connect(self._config.connect_timeout) as client:
                    reason = await self._until_broken(agent, client)
                self.connected.clear()
                if not agent.running:
                    raise AgentError(reason)
                log.warning("lost the connection to the Serf agent, reconnecting: %s", reason)
        except Exception:
            await agent.kill()
            raise

    async def _until_broken(self, agent: Agent, client: Client) -> str:
        ended = asyncio.ensure_future(agent.wait())
        serving = asyncio.ensure_future(self._serve(client))
        try:
            await asyncio.wait([ended, serving], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                # The exit status is the better reason.
                await asyncio.wait([ended], timeout=0.5)
            if ended.done():
                return ended.result()
            try:
                return serving.result()
            except AgentError as error:
                return str(error)
        finally:
            await cancel([ended, serving])
