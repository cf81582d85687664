"""An asyncio client of a Serf agent's RPC port: one connection, one reader task.

1. Every request has a waiter (a future), every open stream a `Subscription`; both are keyed by sequence number and
   registered before the request is written, so that no reply can come too early.
2. When the connection ends, for whatever reason, every waiter and every subscription fails with AgentError, and so does
   each later request.  A client is never reconnected: make a new one.
3. Nothing grows without bound: a subscription keeps `limit` records and drops the oldest, the agent's messages are
   limited by the codec, and the number of waiters by their callers, each of whom waits.

The agent runs the requests of one connection one after another.  Use a connection of its own for a call that may take
long (`join`, `query`, `force-leave`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType

from basefs.errors import AgentError, LocalProtocolError, ProtocolError
from basefs.gossip.connect import open_tcp
from basefs.gossip.members import Member, parse_member
from basefs.gossip.rpc import COMMANDS, Body, Response, RpcCodec, StreamRecord

#: Records that a slow consumer may leave waiting.  The agent keeps 512 more and then drops on its side.
STREAM_LIMIT = 1024


class Subscription:
    """The records of one stream, monitor or query, as an asynchronous iterator.

    Ends when the agent says that nothing more comes (query) or after `aclose`; raises AgentError when the connection
    broke.  `dropped` counts records that were lost because the consumer was too slow.
    """

    def __init__(self, close: Callable[[], Awaitable[None]], limit: int = STREAM_LIMIT) -> None:
        self._records: deque[Body] = deque()
        self._limit = limit
        self._close = close
        self._wakeup = asyncio.Event()
        self._ended = False
        self._error: AgentError | None = None
        self.dropped = 0

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Body:
        while not self._records:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._wakeup.clear()
            await self._wakeup.wait()
        return self._records.popleft()

    async def aclose(self) -> None:
        """Stop the stream in the agent.  Queued records are dropped."""
        self._records.clear()
        if not self._ended:
            self.finish(None)
            await self._close()

    def put(self, record: Body, final: bool) -> None:
        """For the client's reader: one more record has arrived, the last one if `final`."""
        if self._ended:
            return
        if len(self._records) >= self._limit:
            self._records.popleft()
            self.dropped += 1
        self._records.append(record)
        self._ended = final
        self._wakeup.set()

    def finish(self, error: AgentError | None) -> None:
        """For the client's reader: the stream has ended, because of `error` if there is one."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._wakeup.set()


class Client:
    """One authenticated connection.  Made by `connect`; `async with` closes it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float) -> None:
        self._reader = reader
        self._writer = writer
        self._timeout = timeout
        self._codec = RpcCodec()
        self._waiters: dict[int, asyncio.Future[Response]] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._error: AgentError | None = None
        self._task = asyncio.get_running_loop().create_task(self._read(), name="serf-rpc")

    @classmethod
    async def connect(cls, host: str, port: int, auth_key: str, timeout: float = 10.0) -> Client:
        """A connection after handshake and auth.  `timeout`: seconds for this and, by default, for each call: the
        agent answers most in a millisecond, and `force-leave` waits for its broadcast.

        Raises AgentError if the port is closed, the key is wrong, or time runs out.
        """
        try:
            reader, writer = await open_tcp(host, port, timeout)
        except (OSError, asyncio.TimeoutError) as error:
            raise AgentError(f"no Serf agent at {host}:{port}: {str(error) or 'no answer in time'}") from error
        client = cls(reader, writer, timeout)
        try:
            await client.call("handshake", {"Version": 1})
            await client.call("auth", {"AuthKey": auth_key})
        except BaseException:
            await client.close()
            raise
        return client

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self._error is not None

    async def wait_closed(self) -> AgentError:
        """Wait for the connection to end; returns why."""
        await asyncio.wait([self._task])
        return self._error or AgentError("the connection to the Serf agent was closed")

    async def close(self) -> None:
        """End the connection; fails all waiters."""
        self._fail(AgentError("the connection to the Serf agent was closed"))
        self._task.cancel()
        await asyncio.wait([self._task])
        with suppress(OSError):
            await self._writer.wait_closed()

    async def call(self, command: str, body: Body | None = None, timeout: float | None = None) -> Body:
        """The body of the agent's reply, {} where there is none.

        Raises AgentError if the agent refuses, is gone, or does not answer in time; LocalProtocolError for a command
        or a key that Serf does not have, and for the streaming commands, which have methods of their own.
        """
        row = COMMANDS.get(command)
        if row is not None and row.streams:
            raise LocalProtocolError(f"{command} answers with a stream, which needs a subscription")
        seq = self._request(command, body)
        return await self._reply(seq, command, self._timeout if timeout is None else timeout)

    async def subscribe(self, types: str = "*", limit: int = STREAM_LIMIT) -> Subscription:
        """Events of the given types, comma-separated: `user:NAME`, `member-join`, `query:NAME`, `*` ..."""
        return await self.open_stream("stream", {"Type": types}, limit)

    async def query(
        self,
        name: str,
        payload: bytes = b"",
        *,
        ack: bool = False,
        timeout: float = 0.0,
    ) -> Subscription:
        """Ask the cluster; records have `Type` (ack, response, done), `From`, `Payload`.  `timeout`: s, 0: Serf's."""
        body: Body = {
            "Name": name,
            "Payload": payload,
            "RequestAck": ack,
            "Timeout": int(timeout * 1e9),  # Go durations are nanoseconds
        }
        return await self.open_stream("query", body, STREAM_LIMIT)

    async def respond(self, query_id: int, payload: bytes) -> None:
        """Answer the query event with this ID."""
        await self.call("respond", {"ID": query_id, "Payload": payload})

    async def user_event(self, name: str, payload: bytes) -> None:
        """Gossip an event."""
        await self.call("event", {"Name": name, "Payload": payload, "Coalesce": False})

    async def members(self) -> list[Member]:
        """All members that the agent knows, this node included, sorted by name so that lists can be compared."""
        reply = await self.call("members")
        return sorted(map(parse_member, reply.get("Members") or []), key=lambda member: member.name)

    async def join(self, addresses: Sequence[str], replay: bool = False) -> int:
        """Join these nodes; returns how many answered.  AgentError if none did."""
        body = {"Existing": list(addresses), "Replay": replay}
        # Per address: Serf's own TCP timeout is 30 s in the wan profile, and it tries one after another.
        reply = await self.call("join", body, timeout=35.0 * max(len(addresses), 1))
        return int(reply["Num"])

    async def leave(self) -> None:
        """Leave the cluster; the agent exits afterwards."""
        # Two broadcasts of at most 3 s (`broadcast_timeout`) and a second to spread.
        await self.call("leave", timeout=8.0)

    async def stats(self) -> Body:
        """The agent's counters: maps `agent`, `runtime`, `serf`, `tags` of strings."""
        return await self.call("stats")

    async def open_stream(self, command: str, body: Body, limit: int = STREAM_LIMIT) -> Subscription:
        """What `subscribe` and `query` are made of.  Raises AgentError as `call` does."""
        seq = self._request(command, body)
        subscription = self._subscriptions[seq] = Subscription(lambda: self._stop(seq), limit)
        try:
            await self._reply(seq, command, self._timeout)
        except BaseException:
            self._subscriptions.pop(seq, None)
            raise
        return subscription

    async def _stop(self, seq: int) -> None:
        if self._subscriptions.pop(seq, None) is not None and self._error is None:
            await self.call("stop", {"Stop": seq})

    def _request(self, command: str, body: Body | None) -> int:
        if self._error is not None:
            raise self._error
        seq, data = self._codec.request(command, body)
        self._waiters[seq] = asyncio.get_running_loop().create_future()
        self._writer.write(data)
        return seq

    async def _reply(self, seq: int, command: str, timeout: float) -> Body:
        future = self._waiters[seq]
        try:
            await asyncio.wait({future}, timeout=timeout)
        finally:
            self._waiters.pop(seq, None)
        if not future.done():
            # The agent answers in order, so everything behind this request is late as well: give the connection up.
            self._fail(AgentError(f"the Serf agent did not answer {command} within {timeout:g} s"))
        if self._error is not None and (future.cancelled() or not future.done()):
            raise self._error
        reply = future.result()
        if reply.error:
            raise AgentError(f"the Serf agent refused {command}: {' '.join(reply.error.split())}")
        return reply.body

    async def _read(self) -> None:
        error = AgentError("the Serf agent closed the RPC connection")
        try:
            while data := await self._reader.read(65536):
                for event in self._codec.receive_data(data):
                    self._deliver(event)
        except (OSError, ProtocolError) as cause:
            error = AgentError(f"the RPC connection to the Serf agent broke: {cause}")
        finally:
            self._fail(error)

    def _deliver(self, event: Response | StreamRecord) -> None:
        if isinstance(event, Response):
            future = self._waiters.pop(event.seq, None)
            if future is not None and not future.done():
                future.set_result(event)
            return
        subscription = self._subscriptions.get(event.seq)
        if subscription is not None:
            subscription.put(event.body, event.final)
            if event.final:
                del self._subscriptions[event.seq]

    def _fail(self, error: AgentError) -> None:
        if self._error is not None:
            return
        self._error = error
        self._writer.close()
        for future in self._waiters.values():
            # No exception: who waits may be cancelled meanwhile, and asyncio reports one that nobody takes.
            future.cancel()
        self._waiters.clear()
        for subscription in self._subscriptions.values():
            subscription.finish(error)
        self._subscriptions.clear()
