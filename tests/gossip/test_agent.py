"""Starting and ending the real agent: nothing of it may survive us, and nothing secret may leak."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from basefs.errors import AgentError
from basefs.gossip.agent import MOST_MEMORY, Agent
from basefs.tasks import cancel
from tests.gossip.helpers import agent, alive, config_for, run, until
from tests.support.mounts import require_fuse
from tests.support.ports import free_port

# An agent that ends in the moment in which its loop is closed may be reaped by the collector instead of asyncio.
pytestmark = [pytest.mark.serf, pytest.mark.logs("Unknown child process pid")]

PARENT = """
import asyncio, sys, threading, time
from pathlib import Path
from basefs.gossip.agent import Agent
from basefs.gossip.config import AgentConfig

async def main():
    agent = await Agent.start(AgentConfig("a", sys.argv[1]), Path(sys.argv[2]))
    async with await agent.connect():
        print(agent.pid, flush=True)
        await asyncio.Event().wait()

threading.Thread(target=asyncio.run, args=(main(),)).start()
"""


def test_the_agent_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    bind = f"127.0.0.1:{free_port()}"
    with subprocess.Popen([sys.executable, "-c", PARENT, bind, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            assert alive(pid)
        finally:
            parent.kill()
    run(until(lambda: not alive(pid), "the agent's end"))


def test_a_full_disk_is_called_that(tmp_path: Path) -> None:
    require_fuse()  # or nobody could mount anything here
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "basefs-test", tmp_path], check=True)
    try:
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "ballast").write_bytes(bytes(8192))
        with pytest.raises(AgentError, match=f"^the disk that holds {tmp_path} is full: free some space$"):
            run(Agent.start(config_for(tmp_path, "a"), tmp_path))
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_secrets_are_in_a_private_file_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with agent(tmp_path, encrypt_key="cg8StVXbQJ0gPvMd9o7yrg==") as serf, await serf.connect():
            path = tmp_path / "a" / "serf.json"
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert json.loads(path.read_text())["rpc_auth"] == serf.auth_key
            process = Path("/proc", str(serf.pid))
            for secret in (serf.auth_key, "cg8StVXbQJ0gPvMd9o7yrg"):
                assert secret.encode() not in (process / "cmdline").read_bytes()
                assert secret.encode() not in (process / "environ").read_bytes()
            assert os.getsid(serf.pid) == serf.pid
            await serf.stop()
            assert not path.exists()

    run(main())


def test_two_runs_have_different_keys(tmp_path: Path) -> None:
    async def main() -> None:
        async with agent(tmp_path, "a") as first, agent(tmp_path, "b") as second:
            assert first.auth_key != second.auth_key
            assert first.rpc_port != second.rpc_port

    run(main())


def test_an_agent_that_cannot_bind_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with agent(tmp_path, "a") as first, await first.connect() as client:
            (me,) = await client.members()
            async with agent(tmp_path, "b", bind=me.gossip_address) as second:
                with pytest.raises(AgentError, match="address already in use") as caught:
                    await second.connect()
                assert "\n" not in str(caught.value)
                assert not second.running

    run(main())


def test_a_local_user_does_not_have_it_take_the_memory_of_the_machine(tmp_path: Path) -> None:
    """Anybody on the machine reaches the RPC port, and may announce a string of 4 GiB before a key is asked for."""

    async def main() -> None:
        async with agent(tmp_path) as serf, await serf.connect():
            process, most = psutil.Process(serf.pid), 0

            async def send() -> None:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", serf.rpc_port)
                    with contextlib.closing(writer):
                        writer.write(b"\x82\xa7Command\xdb\xff\xff\xff\xff")
                        while serf.running:
                            writer.write(bytes(1 << 20))
                            await writer.drain()

            senders = [asyncio.ensure_future(send()) for _ in range(4)]
            try:
                while serf.running:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        most = max(most, process.memory_info().rss)
                    await asyncio.sleep(0.01)
            finally:
                await cancel(senders)
            assert (await serf.wait()).startswith("the Serf agent ended with status 2")
            assert most < MOST_MEMORY + 64 * 1024 * 1024

    run(main())


def test_a_killed_agent_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with agent(tmp_path) as serf, await serf.connect() as client:
            os.kill(serf.pid, signal.SIGKILL)
            assert (await serf.wait()).startswith("the Serf agent was killed by signal 9")
            await client.wait_closed()
            await serf.stop()
            await serf.kill()

    run(main())


def test_a_stopped_agent_that_hangs_is_killed(tmp_path: Path) -> None:
    async def main() -> None:
        async with agent(tmp_path) as serf, await serf.connect():
            os.kill(serf.pid, signal.SIGSTOP)
            await serf.stop(0.1)
            assert not alive(serf.pid)

    run(main())


def test_a_cancelled_stop_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with agent(tmp_path) as serf, await serf.connect():
            os.kill(serf.pid, signal.SIGSTOP)
            stopping = asyncio.ensure_future(serf.stop())
            await asyncio.sleep(0)
            stopping.cancel()
            await asyncio.wait([stopping])
            await until(lambda: not alive(serf.pid))

    run(main())


def test_a_missing_binary(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="apt-get install serf"):
        run(Agent.start(config_for(tmp_path, "a", serf_path="/nowhere/serf"), tmp_path))
