"""Real TCP on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import random
import socket
import threading
import time

import pytest

from basefs.errors import NetworkError, PeerUnreachable, RemoteProtocolError, WrongFilesystem
from basefs.log.entries import hash_of
from basefs.log.hashes import sha224
from basefs.log.interface import Digest
from basefs.sync.net.parties import Parties
from basefs.sync.net.peers import Pace
from basefs.sync.net.server import SyncServer
from basefs.sync.net.transport import DEFAULT_TIMING, SessionContext, SessionTiming, sync_with
from basefs.sync.session.protocol import Awake
from basefs.sync.session.responder import BatchEncoder
from basefs.sync.session.result import Reason, Result, SessionCounters
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import DEFAULT_LIMITS, VERSION, Limits
from basefs.sync.wire.messages import Entries, Eof, Hash, PathReq, Stay
from tests.support.asynchronous import HOST, run, until
from tests.support.memory import MemoryLog
from tests.support.patience import DEADLINE
from tests.sync.helpers import ROOT, ROOT_ALONE, STRANGER_ROOT, Writer, random_bytes

#: Seconds that sessions wait after an offence without a key.
PAUSE = 3.0


@contextlib.asynccontextmanager
async def serving(log, **options):
    """A server on a free port; its results are collected in `results`."""
    own = {
        name: options.pop(name) for name in ("limits", "timing", "penalties", "pace", "per_party") if name in options
    }
    shared = dataclasses.replace(options.pop("shared", SessionContext()), **own)
    options = {"max_sessions": 16, "shared": shared, **options}
    server = SyncServer(log, HOST, 0, on_result=lambda address, result: results.append((address, result)), **options)
    server.results = results = []  # type: ignore[attr-defined]
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def test_a_session():
    async def main():
        left, right = Writer(), Writer()
        for number in range(100):
            left.write((b"d", b"l%d" % number), b"x%d" % number)
            right.write((b"d", b"r%d" % number), b"y%d" % number)
        logs = left.log(), right.log()
        seen = []
        async with serving(logs[1]) as server:
            result = await sync_with(
                logs[0],
                HOST,
                server.port,
                own_port=4711,
                progress=lambda session: seen.append(session.counters),
            )
            await until(lambda: server.results)
            assert result.equal and result.reason is Reason.COMPLETE
            assert result.peer_port == server.port
            (address, other), *_ = server.results
            assert address == (HOST, 4711) and other.equal
            assert server.sessions == 0
        assert seen[-1].accepted == 200
        assert logs[0].root_hash() == logs[1].root_hash()

    run(main())


def test_large_contents_in_both_directions_at_once():
    async def main():
        left, right = Writer(), Writer()
        for number in range(4):
            left.write((b"l%d" % number,), random_bytes(4 << 20, number))
            right.write((b"r%d" % number,), random_bytes(4 << 20, 10 + number))
        logs = left.log(), right.log()
        async with serving(logs[1]) as server:
            result = await sync_with(logs[0], HOST, server.port)
        assert result.equal
        assert result.counters.blocks_sent == result.counters.blocks_received == 4 * (1 + 128)

    run(main())


def test_both_begin_at_once():
    async def main():
        left, right = Writer(), Writer()
        for number in range(300):
            left.write((b"l%d" % number,), b"x%d" % number)
            right.write((b"r%d" % number,), b"y%d" % number)
        logs = left.log(), right.log()
        async with serving(logs[0]) as one, serving(logs[1]) as two:
            results = await asyncio.gather(
                sync_with(logs[0], HOST, two.port),
                sync_with(logs[1], HOST, one.port),
                sync_with(logs[0], HOST, two.port),
            )
        assert all(result.equal for result in results)
        assert logs[0].root_hash() == logs[1].root_hash()

    run(main())


def test_another_filesystem_is_told_why():
    async def main():
        async with serving(Writer().log()) as server:
            for _ in range(20):  # the reason must not be lost to a reset connection
                result = await sync_with(MemoryLog(STRANGER_ROOT.hash), HOST, server.port)
                assert result.reason is Reason.WRONG_FILESYSTEM
                assert result.detail == "this node serves another filesystem"
            with pytest.raises(WrongFilesystem):
                result.raise_for_reason()

    run(main())


def test_nobody_there():
    async def main():
        async with serving(Writer().log()) as server:
            port = server.port
        result = await sync_with(Writer().log(), HOST, port)
        assert result.reason is Reason.UNREACHABLE and f"{HOST}:{port}" in result.detail

    run(main())


async def say(port, data, then_close=True):
    """Send bytes and return what comes back before the connection ends."""
    reader, writer = await asyncio.open_connection(HOST, port)
    heard = b""
    with contextlib.suppress(OSError):
        writer.write(data)
        await writer.drain()
        if then_close:
            writer.write_eof()
    with contextlib.suppress(OSError):
        while more := await reader.read(65536):
            heard += more
    writer.close()
    return heard


def test_random_bytes_end_that_session_only():
    async def main():
        async with serving(Writer().log()) as server:
            await say(server.port, random.Random(1).randbytes(10 << 20))
            await until(lambda: server.results)
            assert server.results[0][1].reason is Reason.RUBBISH
            assert (await sync_with(Writer().log(), HOST, server.port)).equal

    run(main())


def test_who_breaks_a_rule_without_a_key_has_nobody_banned():
    """Others share its address; sessions from there wait for a moment, whatever number of them it was."""

    async def main():
        pace = Pace()
        async with serving(Writer().log(), timing=SessionTiming(offence_pause=PAUSE), pace=pace) as server:
            heard = await asyncio.gather(*(say(server.port, b"x\n") for _ in range(8)))
            assert all(line.startswith(b"CLOSE NO protocol") for line in heard)
            await until(lambda: len(server.results) == 8)
            began = asyncio.get_running_loop().time()
            others = sync_with(Writer().log(), HOST, server.port), sync_from(server.port, "127.0.0.2")
            same, elsewhere = await asyncio.gather(*(timed(one) for one in others))
            assert same[0].equal and same[1] - began > PAUSE / 2
            assert elsewhere[0] and elsewhere[1] - began < PAUSE / 2, "another address does not wait"
            assert pace.delay(Parties().of(HOST, b""), asyncio.get_running_loop().time()) < PAUSE, "nor again"

    run(main())


@pytest.mark.parametrize("rounds", [False, True], ids=["in a round", "in one round after the other"])
def test_who_wants_the_whole_log_again_and_again_is_sent_it_twice_at_the_most(rounds):
    async def main():
        writer = Writer()
        for number in range(600):
            writer.write((b"%d" % number,), b"x%d" % number)
        log = writer.log()
        count = log.digest().entries
        greeting = encode(Hash(VERSION, ROOT.hash, Digest(sha224(b"another"), 1), 0))
        async with serving(log) as server:
            reader, out = await asyncio.open_connection(HOST, server.port, limit=1 << 20)
            out.write(greeting)
            while not (await reader.readline()).startswith(b"LS "):
                pass
            out.write(encode(Eof()) + encode(PathReq(())))
            while not (line := await reader.readline()).startswith(b"CLOSE NO"):
                assert line
                if line == encode(Eof()) and not rounds:
                    out.write(encode(PathReq(())))
                elif line.startswith(b"CLOSE OK"):
                    out.write(greeting if rounds else encode(PathReq(())))
                elif line.startswith(b"LS "):
                    out.write(encode(Eof()) + encode(PathReq(())))
            assert line.startswith(b"CLOSE NO useless"), line
            out.close()
            await until(lambda: server.results)
            (_, result), *_ = server.results
            assert result.misbehaved
            assert 2 * count < result.counters.entries_sent <= 3 * count

    run(main())


async def sync_from(port, source):
    """Greet from another address of this machine, and return the answer."""
    reader, writer = await asyncio.open_connection(HOST, port, local_addr=(source, 0))
    writer.write(encode(Hash(VERSION, ROOT.hash, Digest(ROOT_ALONE, 1), 0)))
    answer = await reader.readline()
    writer.close()
    return answer


async def timed(work):
    """A result, and when it was there."""
    result = await work
    return result, asyncio.get_running_loop().time()


def test_rubbish_is_told_so():
    async def main():
        async with serving(Writer().log()) as server:
            heard = await say(server.port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert heard.startswith(b"CLOSE NO protocol ")

    run(main())


#: Of sessions that look at the time so often that a limit of half a second is seen in time.
QUICK = SessionTiming(tick=0.02)


class Looks(Awake):
    """Notes when sessions look at the time."""

    def __init__(self, longest=2.0):
        super().__init__(longest)
        self.times = []

    def time(self, now):
        self.times.append(super().time(now))
        return self.times[-1]


def test_a_peer_that_is_too_slow_to_greet():
    async def main():
        limits = dataclasses.replace(DEFAULT_LIMITS, greeting_timeout=0.3)
        async with serving(Writer().log(), limits=limits, timing=QUICK) as server:
            reader, writer = await asyncio.open_connection(HOST, server.port)

            async def drip():
                with contextlib.suppress(OSError):
                    for byte in b"HASH 3 " * 1000:
                        writer.write(bytes((byte,)))
                        await writer.drain()
                        await asyncio.sleep(0.01)

            dripping = asyncio.create_task(drip())
            heard = await reader.read()
            assert heard.startswith(b"CLOSE NO timeout no%20greeting")
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)
            writer.close()
            await until(lambda: server.results)
            assert server.results[0][1].reason is Reason.TIMEOUT
            # On a link that loses packets this happens to honest peers.
            assert (await sync_with(Writer().log(), HOST, server.port)).equal

    run(main())


def test_a_peer_whose_greeting_lies_unread_because_this_node_was_busy():
    """A machine without a moment to spare must not ban those who were in time."""
    looks = Looks(0.04)

    async def main():
        limits = dataclasses.replace(DEFAULT_LIMITS, greeting_timeout=0.3)
        shared = SessionContext(awake=looks, timing=QUICK)
        async with serving(Writer().log(), limits=limits, shared=shared) as server:
            reader, out = await asyncio.open_connection(HOST, server.port)
            await until(lambda: server.sessions)
            async with shared.turns:
                out.write(encode(Hash(VERSION, ROOT.hash, Digest(ROOT_ALONE, 1), 0)))
                await until(lambda: looks.times)
                time.sleep(1)  # nothing else runs
                before = len(looks.times)
                await until(lambda: len(looks.times) > before)
            assert (await reader.readline()).startswith(b"SAME ")
            out.close()
            await until(lambda: server.results)
            assert server.results[0][1].reason is not Reason.TIMEOUT

    run(main())


def test_a_peer_whose_greeting_waits_for_the_turn_of_others():
    """It is not silent, and must not be banned for that."""
    looks = Looks()

    async def main():
        limits = dataclasses.replace(DEFAULT_LIMITS, greeting_timeout=0.3)
        shared = SessionContext(awake=looks, timing=QUICK)
        async with serving(Writer().log(), limits=limits, shared=shared) as server:
            async with shared.turns:
                reader, out = await asyncio.open_connection(HOST, server.port)
                out.write(encode(Hash(VERSION, ROOT.hash, Digest(ROOT_ALONE, 1), 0)))
                await until(lambda: looks.times and looks.times[-1] - looks.times[0] > 0.6)
            assert (await reader.readline()).startswith(b"SAME ")
            out.close()
            await until(lambda: server.results)
            assert server.results[0][1].reason is not Reason.TIMEOUT

    run(main())


def test_a_peer_that_asks_and_does_not_read():
    async def main():
        writer = Writer()
        writer.write((b"f",), random_bytes(32 << 20))
        limits = dataclasses.replace(DEFAULT_LIMITS, idle_timeout=0.5)
        async with serving(writer.log(), limits=limits, timing=SessionTiming(tick=0.02, grace=0.1)) as server:
            first = writer.entries[1]
            _, out = await asyncio.open_connection(HOST, server.port, limit=1024)
            out.write(encode(Hash(VERSION, ROOT.hash, Digest(ROOT_ALONE, 1), 0)) + b"PATH_REQ /\n" * 200)
            await until(lambda: server.results)
            assert server.results[0][1].reason is Reason.TIMEOUT
            assert server.sessions == 0 and first
            out.close()

    run(main())


def test_a_session_that_ends_before_it_is_its_turn_sends_nothing_behind_the_end(caplog):
    """On a busy node a sender may wait for longer than the end of its session does."""

    async def main():
        writer = Writer()
        writer.write((b"f",), random_bytes(1 << 20))
        limits = dataclasses.replace(DEFAULT_LIMITS, idle_timeout=0.5)
        shared = SessionContext(timing=SessionTiming(tick=0.02, grace=0.5))
        async with serving(writer.log(), limits=limits, shared=shared) as server:
            reader, out = await asyncio.open_connection(HOST, server.port)
            out.write(encode(Hash(VERSION, ROOT.hash, Digest(ROOT_ALONE, 1), 0)) + b"PATH_REQ /\n" * 40)
            await reader.readline()
            async with shared.turns:
                # Until the session gives up, and ends what it sends.
                await reader.read()
            await until(lambda: not server.sessions)
            out.close()
            assert [result.reason for _, result in server.results] == [Reason.TIMEOUT]
        assert not caplog.records

    run(main())


def test_a_peer_that_slowly_receives_what_was_sent_is_not_idle():
    """A slow machine takes minutes for what the kernels hold, in which its peer can send nothing."""

    async def main():
        writer = Writer()
        writer.write((b"f",), random_bytes(60_000))
        limits = dataclasses.replace(DEFAULT_LIMITS, idle_timeout=1.5)
        async with serving(writer.log(), limits=limits, timing=SessionTiming(tick=0.02, grace=0.1)) as server:
            # Its kernel holds little, so the rest waits in the kernel of the node that has sent it.
            line = socket.socket()
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.setblocking(False)
            await asyncio.get_running_loop().sock_connect(line, (HOST, server.port))
            reader, out = await asyncio.open_connection(sock=line, limit=1024)
            out.write(encode(Hash(VERSION, ROOT.hash, Digest(ROOT_ALONE, 1), 0)) + b"PATH_REQ /\n")
            began = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() - began < 2 * limits.idle_timeout:
                assert await reader.read(1024)
                await asyncio.sleep(0.05)
            assert server.sessions == 1 and not server.results
            # Once it receives nothing more, it is.
            await until(lambda: server.results)
            assert server.results[0][1].reason is Reason.TIMEOUT
            out.close()

    run(main())


def test_cut_in_the_middle_and_resumed():
    async def main():
        writer = Writer()
        writer.write((b"f",), random_bytes(8 << 20))
        full = writer.log()
        behind = MemoryLog(ROOT.hash)
        async with serving(full) as server:

            async def proxy(reader, out, budget):
                """Forward to the server until `budget` bytes came back, then cut both connections."""
                server_reader, server_out = await asyncio.open_connection(HOST, server.port)

                async def forward():
                    with contextlib.suppress(OSError):
                        while data := await reader.read(65536):
                            server_out.write(data)

                forwarding = asyncio.create_task(forward())
                with contextlib.suppress(OSError):
                    while budget > 0 and (data := await server_reader.read(65536)):
                        out.write(data)
                        await out.drain()
                        budget -= len(data)
                forwarding.cancel()
                await asyncio.gather(forwarding, return_exceptions=True)
                out.transport.abort()
                server_out.transport.abort()

            cut = await asyncio.start_server(lambda r, w: proxy(r, w, 4 << 20), HOST, 0)
            result = await sync_with(behind, HOST, cut.sockets[0].getsockname()[1])
            assert result.reason is Reason.LOST
            cut.close()
            got = result.counters.accepted
            # Two entries and the manifest come first.
            assert 20 < got - 3 < 256
            result = await sync_with(behind, HOST, server.port)
            assert result.equal
            assert result.counters.blocks_received == 256 - (got - 3), "what was there is not sent again"

    run(main())


def test_the_number_of_sessions_is_limited():
    async def main():
        async with serving(Writer().log(), max_sessions=2) as server:
            silent = [await asyncio.open_connection(HOST, server.port) for _ in range(2)]
            await until(lambda: server.sessions == 2)
            result = await sync_with(Writer().log(), HOST, server.port)
            assert result.reason is Reason.BUSY and result.by_peer
            for _, writer in silent:
                writer.close()
            await until(lambda: server.sessions == 0)
            assert (await sync_with(Writer().log(), HOST, server.port)).equal
        async with serving(Writer().log(), per_party=1) as server:
            _, writer = await asyncio.open_connection(HOST, server.port)
            await until(lambda: server.sessions == 1)
            assert (await sync_with(Writer().log(), HOST, server.port)).reason is Reason.BUSY
            writer.close()

    run(main())


def test_stop_ends_sessions_and_tells_the_peer():
    async def main():
        shared = SessionContext()
        async with serving(Writer().log(), shared=shared) as server:
            reader, writer = await asyncio.open_connection(HOST, server.port)
            await until(lambda: shared.sessions)
        assert await reader.read() == b"CLOSE NO failure this%20node%20is%20stopping\n"
        writer.close()
        await server.stop()

    run(main())


def test_stop_while_a_peer_reads_why_it_was_refused(caplog):
    async def main():
        shared = SessionContext(timing=SessionTiming(grace=DEADLINE))
        server = SyncServer(Writer().log(), HOST, 0, max_sessions=16, shared=shared)
        await server.start()
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(b"rubbish\n")
        assert (await reader.read()).startswith(b"CLOSE NO protocol")
        assert server.sessions == 1, "it waits for the peer to hang up"
        await server.stop()
        writer.close()
        assert "failed" not in caplog.text

    run(main())


class Broken(MemoryLog):
    """A log whose disk has failed."""

    error: Exception

    def listing(self, path):
        raise self.error


@pytest.mark.parametrize("side", ["server", "client"])
def test_a_log_that_fails_ends_the_session(side, caplog):
    from basefs.errors import DamagedLog

    def broken(error):
        log = Broken(ROOT.hash)
        log.error = error
        log.add([ROOT.encode()], ())
        return log

    async def main(error):
        writer = Writer()
        writer.write((b"f",), b"x")
        if side == "server":
            async with serving(broken(error)) as server:
                result = await sync_with(writer.log(), HOST, server.port)
                await until(lambda: not server.sessions)
                return result
        async with serving(writer.log()) as server:
            return await sync_with(broken(error), HOST, server.port)

    result = asyncio.run(main(DamagedLog("row 7")))
    assert result.reason is Reason.FAILURE
    # Anything but an error of ours is a bug, and loud.
    if side == "client":
        with pytest.raises(ZeroDivisionError):
            asyncio.run(main(ZeroDivisionError()))
    else:
        asyncio.run(main(ZeroDivisionError()))
        assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (Reason.COMPLETE, None),
        (Reason.RUBBISH, RemoteProtocolError),
        (Reason.WRONG_VERSION, WrongFilesystem),
        (Reason.LOST, PeerUnreachable),
        (Reason.BUSY, NetworkError),
    ],
)
def test_results_as_errors(reason, error):
    result = Result(reason, "why", False, SessionCounters())
    if error is None:
        result.raise_for_reason()
    else:
        with pytest.raises(error, match="why"):
            result.raise_for_reason()


def test_limits_are_in_proportion():
    assert Limits() == DEFAULT_LIMITS
    assert DEFAULT_LIMITS.greeting_timeout >= 10 * DEFAULT_TIMING.tick


class SlowLog:
    """A log whose `add` lasts until `go` is set."""

    def __init__(self, log):
        self._log = log
        self.adding, self.go = threading.Event(), threading.Event()

    def __getattr__(self, name):
        return getattr(self._log, name)

    def add(self, entries, blocks, *, peer=""):
        self.adding.set()
        assert self.go.wait(DEADLINE / 4), "the event loop waits for the log"
        return self._log.add(entries, blocks, peer=peer)


class Threads(MemoryLog):
    """A log that remembers which threads have added entries to it."""

    def __init__(self, identity):
        super().__init__(identity)
        self.threads = []

    def add(self, entries, blocks, *, peer=""):
        if entries:
            self.threads.append(threading.current_thread())
        return super().add(entries, blocks, peer=peer)


@pytest.mark.parametrize("then", ["nothing comes for a while", "the connection ends"])
def test_entries_do_not_wait_for_their_blocks_for_long_and_are_added_by_a_worker(then):
    writer = Writer()
    writer.write((b"f",), b"content")
    entries = b"".join(BatchEncoder(writer.log(), SessionCounters()).entries(writer.entries[1:])).partition(b"BLOCKS")[
        0
    ]
    log = Threads(ROOT.hash)
    log.add(writer.entries[:1], [])
    log.threads.clear()

    async def main():
        async with serving(log) as server:
            reader, writer = await asyncio.open_connection(HOST, server.port)
            writer.write(encode(Hash(VERSION, ROOT.hash, Digest(sha224(b"another"), 1), 0)))
            while not (await reader.readline()).startswith(b"LS "):
                pass
            writer.write(entries)
            if then == "the connection ends":
                writer.close()
                await until(lambda: server.results)
            else:
                await until(lambda: log.threads)
                assert not server.results
                writer.close()
        assert len(log) == 2
        assert log.threads and threading.current_thread() not in log.threads

    run(main())


def filled(count):
    writer = Writer()
    for number in range(count):
        writer.write((b"f%d" % number,), b"x%d" % number)
    return writer.log()


def test_the_loop_goes_on_while_the_log_takes_something():
    async def main():
        full, slow = filled(300), SlowLog(Writer().log())
        async with serving(full) as server:
            session = asyncio.create_task(sync_with(slow, HOST, server.port))
            await until(slow.adding.is_set)
            # Another session of this node runs to its end meanwhile.
            other = await sync_with(full, HOST, server.port)
            assert other.equal and not session.done()
            slow.go.set()
            result = await session
        assert result.equal and result.counters.accepted >= 300
        assert slow.root_hash() == full.root_hash()

    run(main())


class AllStand:
    """A keeper that lets every session stand."""

    def may_keep(self, address, key, role):
        return True

    def notice(self, session, notice):
        pass


def test_news_does_not_wait_for_what_another_session_gives_to_the_log():
    async def main():
        author, shared = Writer(), SessionContext()
        slow = SlowLog(author.log())
        author.write((b"news",))
        async with serving(filled(300)) as full, serving(slow, shared=shared, keeper=AllStand()) as server:
            reader, writer = await asyncio.open_connection(HOST, server.port)
            writer.write(encode(Hash(VERSION, ROOT.hash, Digest(slow.root_hash(), 1), 1)) + encode(Stay()))
            while await reader.readline() != b"STAY\n":
                pass
            comparing = asyncio.create_task(sync_with(slow, HOST, full.port, shared=shared))
            await until(slow.adding.is_set)
            slow.adding.clear()
            writer.write(encode(Entries(tuple(author.entries))))
            await until(slow.adding.is_set)
            assert not comparing.done()
            slow.go.set()
            assert (await comparing).reason is Reason.COMPLETE
            await until(lambda: slow.entry(hash_of(author.entries[-1])))
            writer.close()
        assert slow.path_hash((b"news",)) == author.log().path_hash((b"news",))

    run(main())


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_comes_while_the_server_stops_is_closed(turns, recwarn):
    async def main():
        server = SyncServer(Writer().log(), HOST, 0, max_sessions=4)
        await server.start()
        with socket.create_connection((HOST, server.port)) as peer:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.stop()
            peer.settimeout(DEADLINE)
            await asyncio.to_thread(read_to_the_end, peer)

    run(main())
    gc.collect()
    assert not [str(warning.message) for warning in recwarn]


def read_to_the_end(peer):
    """Returns when the other side has closed the connection."""
    with contextlib.suppress(ConnectionResetError):
        while peer.recv(4096):
            pass


def test_a_session_that_is_cancelled_while_the_log_takes_something():
    async def main():
        full, slow = filled(300), SlowLog(Writer().log())
        async with serving(full) as server:
            session = asyncio.create_task(sync_with(slow, HOST, server.port))
            await until(slow.adding.is_set)
            session.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await session
            slow.go.set()
            assert (await sync_with(slow, HOST, server.port)).equal

    run(main())


def test_a_session_that_is_abandoned_while_the_log_takes_something():
    async def main():
        full, slow = filled(300), SlowLog(Writer().log())
        sessions = []
        async with serving(full) as server:
            task = asyncio.create_task(sync_with(slow, HOST, server.port, progress=sessions.append))
            await until(lambda: slow.adding.is_set() and sessions)
            sessions[0].end(Reason.ENOUGH)
            slow.go.set()
            assert (await task).reason is Reason.ENOUGH
            assert (await sync_with(slow, HOST, server.port)).equal

    run(main())


def test_nodes_behind_one_address_get_everything_while_another_one_knocks_there():
    """They wait for the pace of their host, and are not turned away."""

    async def main():
        full = filled(50)
        begun = []
        pace = Pace(20, 4)
        async with serving(full, pace=pace, per_party=8) as server:
            start = asyncio.get_running_loop().time()

            async def knock():
                while True:
                    reader, writer = await asyncio.open_connection(HOST, server.port)
                    with contextlib.suppress(OSError), contextlib.closing(writer):
                        writer.write(encode(Hash(VERSION, full.identity, full.digest(), 0)))
                        if (await reader.readline()).startswith(b"SAME"):
                            begun.append(server.port)

            async def newcomer():
                log = Writer().log()
                while not (result := await sync_with(log, HOST, server.port)).equal:
                    assert result.reason is Reason.BUSY, result
                assert log.root_hash() == full.root_hash()

            knocking = [asyncio.create_task(knock()) for _ in range(4)]
            await asyncio.gather(*(newcomer() for _ in range(4)))
            await until(lambda: len(begun) > 20)
            passed = asyncio.get_running_loop().time() - start
            for task in knocking:
                task.cancel()
            await asyncio.gather(*knocking, return_exceptions=True)
            assert len(begun) + 4 <= 4 + 20 * passed + 1
            await until(lambda: server.sessions == 0)

    run(main())


def test_a_newcomer_gets_everything_while_others_at_its_address_ask_for_everything_again_and_again():
    async def main():
        full = filled(300)
        ended = []
        async with serving(full) as server:

            async def ask():
                reader, writer = await asyncio.open_connection(HOST, server.port, limit=1 << 20)
                with contextlib.closing(writer):
                    writer.write(encode(Hash(VERSION, full.identity, Digest(random_bytes(28), 1), 0)))
                    writer.write(encode(PathReq(())) * 20)
                    async for line in reader:
                        if line.startswith(b"LS "):
                            writer.write(encode(Eof()))
                        elif line == encode(Eof()):
                            ended.append(1)
                            writer.write(encode(PathReq(())))

            async def ask_for_ever():
                while True:
                    with contextlib.suppress(OSError):
                        await ask()

            asking = [asyncio.create_task(ask_for_ever()) for _ in range(6)]
            await until(lambda: len(ended) > 6)
            log = Writer().log()
            # Those that have just been sent away may still have the places of the address, and a node tries again.
            while not (result := await sync_with(log, HOST, server.port)).equal:
                assert result.reason is Reason.BUSY, result
            assert log.root_hash() == full.root_hash()
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            await until(lambda: server.sessions == 0)

    run(main())
