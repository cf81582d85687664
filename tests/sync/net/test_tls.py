"""The TLS filter, byte by byte, and sessions over it on loopback."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import gc
import random
import socket
import ssl
import struct
import tempfile
import threading
import time
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from basefs.log.hashes import sha224
from basefs.log.interface import Digest
from basefs.log.keys import SigningKey
from basefs.sync.net import tls
from basefs.sync.net.connection import Connection
from basefs.sync.net.parties import Parties
from basefs.sync.net.peers import PenaltyBox
from basefs.sync.net.server import SyncServer
from basefs.sync.net.tls import ALPN, Credentials, Refused, TlsFilter, anchor
from basefs.sync.net.transport import Session, SessionContext, core_of, sync_with
from basefs.sync.session.result import Reason, Result
from basefs.sync.session.states import Role
from basefs.sync.wire.codec import encode
from basefs.sync.wire.limits import VERSION
from basefs.sync.wire.messages import Hash, Root, Stay
from tests.support.asynchronous import run_uncollected, until
from tests.support.memory import MemoryLog
from tests.support.patience import DEADLINE
from tests.support.syncing import Syncing, running
from tests.sync.helpers import ROOT, STRANGER_ROOT, Writer

HOST = "127.0.0.1"
A, B, STRANGER = (SigningKey.generate() for _ in range(3))


def credentials(key: SigningKey, *trusted: SigningKey) -> Credentials:
    return Credentials(key, [each.public for each in trusted])


def parts(data: bytes, size: int) -> Iterable[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def shake(client: TlsFilter, server: TlsFilter, size: int = 1 << 20) -> bytes:
    """Both sides of a handshake, in pieces of some size; returns what the server has sent."""
    done = {client: client.shake(b""), server: False}
    sent = b""
    while not all(done.values()):
        moved = False
        for one, other in ((client, server), (server, client)):
            data = one.to_send()
            if one is server:
                sent += data
            for piece in parts(data, size):
                moved = True
                if done[other]:
                    other.decrypt(piece)
                else:
                    done[other] = other.shake(piece)
        assert moved, "neither side goes on"
    return sent


def pair(one: Credentials, other: Credentials, size: int = 1 << 20) -> tuple[TlsFilter, TlsFilter]:
    client, server = one.client(), other.server()
    shake(client, server, size)
    return client, server


def test_each_side_knows_the_key_of_the_other_one() -> None:
    client, server = pair(credentials(A, B, STRANGER), credentials(B, STRANGER, A))
    assert (client.peer, server.peer) == (B.public, A.public)


def test_no_clock_of_this_millennium_is_wrong() -> None:
    """OpenSSL compares certificates with the clock of the machine: it never finds one that is not valid."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([tls.ALPN])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    anyone, server = context.wrap_bio(incoming, outgoing), credentials(B, A).server()
    for _ in range(2):
        with contextlib.suppress(ssl.SSLWantReadError):
            anyone.do_handshake()
        if data := outgoing.read():
            with contextlib.suppress(Refused):
                server.shake(data)
        incoming.write(server.to_send())
    leaf = anyone.getpeercert(binary_form=True)
    assert leaf is not None
    for found in (leaf, anchor(A.public)):
        # As DER has them (RFC 5280, section 4.1.2.5).
        assert b"000101000000Z" in found and b"99991231235959Z" in found


@pytest.mark.parametrize("size", [1, 2, 5, 21, 1000])
def test_any_pieces_of_a_handshake_and_of_records_come_through(size: int) -> None:
    client, server = pair(credentials(A, B), credentials(B, A), size)
    sent = random.Random(size).randbytes(40_000)
    for one, other in ((client, server), (server, client)):
        one.encrypt(sent)
        one.encrypt(b"and more")
        got = b"".join(other.decrypt(piece) for piece in parts(one.to_send(), size))
        assert got == sent + b"and more"
        assert not other.ended


def test_a_handshake_and_a_record_are_small() -> None:
    few, many = credentials(A, B), credentials(A, B, *(SigningKey.generate() for _ in range(50)))
    sizes = []
    for ours in (few, many):
        client, server = ours.client(), credentials(B, A).server()
        sizes.append(len(shake(client, server)))
        client.encrypt(b"x" * 1000)
        assert len(client.to_send()) == 1000 + 22
    assert max(sizes) < 1000, "of the server, whatever the number of keys"


def test_what_is_sent_is_not_readable() -> None:
    client, _ = pair(credentials(A, B), credentials(B, A))
    client.encrypt(b"canary" * 100)
    assert b"canary" not in client.to_send()


def test_a_record_that_is_cut_anywhere_waits_for_the_rest() -> None:
    client, server = pair(credentials(A, B), credentials(B, A))
    for cut in range(1, 26):
        client.encrypt(b"text")
        record = client.to_send()
        assert len(record) == 26
        assert server.decrypt(record[:cut]) == (b"" if cut < len(record) else b"text")
        assert server.decrypt(record[cut:]) == (b"text" if cut < len(record) else b"")


def test_a_changed_record_ends_the_connection() -> None:
    client, server = pair(credentials(A, B), credentials(B, A))
    client.encrypt(b"text")
    record = bytearray(client.to_send())
    record[-1] ^= 1
    with pytest.raises(Refused) as refused:
        server.decrypt(bytes(record))
    assert refused.value.reason is Reason.LOST


def refusal(client: TlsFilter, server: TlsFilter) -> tuple[Refused, Refused]:
    """Why the server refuses the client, and what the client learns."""
    with pytest.raises(Refused) as by_server:
        shake(client, server)
    alert = server.to_send()
    with pytest.raises(Refused) as by_client:
        client.decrypt(alert)
    return by_server.value, by_client.value


def test_a_stranger_is_refused_and_told_what_to_do() -> None:
    theirs, ours = refusal(credentials(STRANGER, B).client(), credentials(B, A).server())
    assert (theirs.reason, theirs.by_peer) == (Reason.UNKNOWN_KEY, False)
    assert (ours.reason, ours.by_peer) == (Reason.UNKNOWN_KEY, True)
    assert "basefs grant" in ours.detail


def test_a_client_refuses_a_server_that_is_no_member() -> None:
    client, server = credentials(A, B).client(), credentials(STRANGER, A).server()
    with pytest.raises(Refused) as refused:
        shake(client, server)
    assert refused.value.reason is Reason.UNKNOWN_KEY and not refused.value.by_peer
    # It has not shown its own key.
    assert A.public.hex().encode() not in client.to_send()


def test_a_newcomer_trusts_any_server_and_serves_nobody() -> None:
    newcomer = Credentials(A, None)
    client, server = pair(newcomer, credentials(B, A))
    assert client.peer is None and server.peer == A.public
    refusal(credentials(B, A).client(), newcomer.server())


def test_a_stranger_learns_no_key_but_that_of_the_server() -> None:
    client, server = Credentials(STRANGER, None).client(), credentials(B, A).server()
    client.shake(b"")
    server.shake(client.to_send())
    told = server.to_send()
    for key in (A, B):
        assert key.public not in told and key.public.hex().encode() not in told


def certificate(
    subject: str, issuer: str, public: SigningKey | Ed25519PrivateKey, signer: SigningKey, *, ca: bool = False
) -> x509.Certificate:
    signer_id = sha224(bytes.fromhex(issuer))[:20] if len(issuer) == 64 else bytes(20)
    key = public.private.public_key() if isinstance(public, SigningKey) else public.public_key()
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in (subject, issuer)]
    return (
        x509.CertificateBuilder()
        .subject_name(names[0])
        .issuer_name(names[1])
        .public_key(key)
        .serial_number(7)
        .not_valid_before(datetime.datetime(2000, 1, 1))
        .not_valid_after(datetime.datetime(9999, 12, 31))
        .add_extension(x509.BasicConstraints(ca, None), critical=True)
        .add_extension(x509.KeyUsage(not ca, False, False, False, False, ca, False, False, False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier(bytes(20)), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier(signer_id, None, None), critical=False)
        .sign(signer.private, None)
    )


def showing(holder: SigningKey | Ed25519PrivateKey, *chain: x509.Certificate) -> TlsFilter:
    """A client that shows certificates of its own making."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols([ALPN])
    private = holder.private if isinstance(holder, SigningKey) else holder
    pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain)
    pem += private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
    return TlsFilter(Credentials(STRANGER, None), context, is_server=False)


def test_the_name_of_a_member_is_worth_nothing_without_its_signature() -> None:
    name = A.public.hex()
    leaf = certificate("basefs", name, STRANGER, STRANGER)
    authority = certificate(name, name, STRANGER, STRANGER, ca=True)
    for chain in ([leaf], [authority], [leaf, authority]):
        client = showing(STRANGER, *chain)
        with pytest.raises(Refused) as refused:
            shake(client, credentials(B, A).server())
        assert refused.value.reason is Reason.UNKNOWN_KEY


def test_a_member_lets_nobody_in_by_a_certificate() -> None:
    between = certificate("between", A.public.hex(), STRANGER, A, ca=True)
    client = showing(STRANGER, certificate("basefs", "between", STRANGER, STRANGER), between)
    with pytest.raises(Refused):
        shake(client, credentials(B, A).server())


def test_an_anchor_names_one_key() -> None:
    for key in (A, B):
        found = x509.load_der_x509_certificate(anchor(key.public))
        assert found.public_key() == key.private.public_key()
        assert (
            found.subject == found.issuer == x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, key.public.hex())])
        )
    assert A.public not in anchor(B.public)


def test_a_key_that_is_granted_later_comes_in_and_a_revoked_one_does_not() -> None:
    server = credentials(B)
    refusal(credentials(A, B).client(), server.server())
    server.update([A.public])
    pair(credentials(A, B), server)
    server.update([STRANGER.public])
    refusal(credentials(A, B).client(), server.server())


def test_one_more_key_costs_no_more_than_itself() -> None:
    keys = [SigningKey.generate().public for _ in range(300)]
    ours = credentials(A, B)

    def seconds(trusted: list[bytes]) -> float:
        began = time.process_time()
        ours.update(trusted)
        return time.process_time() - began

    assert seconds([B.public, *keys]) > 10 * seconds([B.public, STRANGER.public, *keys])
    assert pair(credentials(STRANGER, A), ours)[1].peer == STRANGER.public
    assert pair(ours, credentials(STRANGER, A))[0].peer == STRANGER.public


def test_a_key_that_is_revoked_during_its_handshake_does_not_come_in() -> None:
    server_credentials = credentials(B, A)
    client, server = credentials(A, B).client(), server_credentials.server()
    client.shake(b"")
    server.shake(client.to_send())
    server_credentials.update([STRANGER.public])
    assert client.shake(server.to_send())
    with pytest.raises(Refused):
        server.shake(client.to_send())


def test_an_endless_handshake_is_refused() -> None:
    server = credentials(B, A).server()
    hello = ssl.create_default_context()
    hello.check_hostname = False
    with pytest.raises(Refused):
        for _ in range(10_000):
            server.shake(b"\x16\x03\x01\x00\x05\x01\x00\xff\xff\x00")


def test_only_the_newest_tls_is_spoken() -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        old.wrap_bio(incoming, outgoing).do_handshake()
    with pytest.raises(Refused):
        credentials(B, A).server().shake(outgoing.read())


# -- sessions ---------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(log: Any, shared: SessionContext, **options: Any) -> AsyncIterator[SyncServer]:
    server = SyncServer(log, HOST, 0, **{"max_sessions": 4, **options}, shared=shared)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, DEADLINE))


def writer_with(text: bytes) -> Writer:
    writer = Writer()
    writer.write((b"file",), text)
    return writer


def test_members_compare_and_count_what_goes_over_the_wire() -> None:
    async def main() -> None:
        text = random.Random(1).randbytes(300_000)
        results: list[Result] = []
        shared = SessionContext(credentials=credentials(B, A))
        async with serving(
            writer_with(text).log(), shared, on_result=lambda address, result: results.append(result)
        ) as server:
            ours = SessionContext(credentials=credentials(A, B))
            result = await sync_with(Writer().log(), HOST, server.port, shared=ours)
            assert result.equal and result.key == B.public
            await until(lambda: results)
        assert results[0].key == A.public
        # What one side has sent, the other one has received, records and handshake included.
        assert results[0].counters.bytes_sent == result.counters.bytes_received > len(text)
        assert result.counters.bytes_sent == results[0].counters.bytes_received

    run(main())


async def raw(port: int, data: bytes) -> bytes:
    """What somebody reads who sends this."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(data)
    got = await reader.read()
    writer.close()
    return got


def test_a_closed_filesystem_answers_a_stranger_with_no_byte_of_its_own() -> None:
    async def main() -> None:
        writer = writer_with(b"canary")
        log = writer.log()
        shared = SessionContext(credentials=credentials(B, A))
        async with serving(log, shared) as server:
            for stranger in (credentials(STRANGER, B), Credentials(STRANGER, None)):
                result = await sync_with(Writer().log(), HOST, server.port, shared=SessionContext(credentials=stranger))
                assert result.reason is Reason.UNKNOWN_KEY and result.by_peer
                assert "basefs grant" in result.detail
                assert not any(result.peer_identity)
            greeting = encode(Hash(VERSION, bytes(28), Writer().log().digest(), 0))
            told = await raw(server.port, greeting)
            assert told.startswith(b"CLOSE NO tls ") and base64.b64encode(ROOT.hash).rstrip(b"=") not in told
            await raw(server.port, b"rubbish\n" * 10)
            # Nobody was banned, nor has anybody to wait: a member behind the same address comes in.
            now = asyncio.get_running_loop().time()
            assert (
                not shared.penalties.banned(Parties().of(HOST, b""), now)
                and shared.pace.delay(Parties().of(HOST, b""), now) == 0
            )
            ours = SessionContext(credentials=credentials(A, B))
            assert (await sync_with(log, HOST, server.port, shared=ours)).equal

    run(main())


def test_an_open_and_a_closed_side_tell_each_other() -> None:
    async def main() -> None:
        ours = SessionContext(credentials=credentials(A, B))
        async with serving(Writer().log(), SessionContext()) as server:
            result = await sync_with(Writer().log(), HOST, server.port, shared=ours)
            assert result.reason is Reason.NO_TLS
            # Not a ban, so that it can come again as it should.
            assert (await sync_with(Writer().log(), HOST, server.port)).equal
        async with serving(Writer().log(), SessionContext(credentials=credentials(B, A))) as server:
            result = await sync_with(Writer().log(), HOST, server.port)
            assert (result.reason, result.by_peer) == (Reason.NO_TLS, True)

    run(main())


def test_another_filesystem_of_the_same_keys_is_refused_as_before() -> None:
    async def main() -> None:
        async with serving(Writer().log(), SessionContext(credentials=credentials(B, A))) as server:
            ours = SessionContext(credentials=credentials(A, B))
            result = await sync_with(MemoryLog(STRANGER_ROOT.hash), HOST, server.port, shared=ours)
            assert result.reason is Reason.WRONG_FILESYSTEM

    run(main())


def test_a_member_that_breaks_a_rule_is_banned_by_its_key_alone() -> None:
    async def main() -> None:
        shared = SessionContext(credentials=credentials(B, A, STRANGER), penalties=PenaltyBox(DEADLINE))
        async with serving(Writer().log(), shared) as server:
            other = Credentials(STRANGER, [B.public])
            connection = await Connection.open(HOST, server.port, other)
            connection.write(b"rubbish\n" * 10)
            while await connection.read(DEADLINE):
                pass
            await connection.close_within(1.0)
            await until(lambda: server.sessions == 0)
            result = await sync_with(Writer().log(), HOST, server.port, shared=SessionContext(credentials=other))
            assert result.reason is Reason.BANNED
            ours = SessionContext(credentials=credentials(A, B))
            assert (await sync_with(Writer().log(), HOST, server.port, shared=ours)).equal

    run(main())


def test_a_connection_that_sends_what_is_damaged_holds_nothing_when_it_has_ended() -> None:
    """Otherwise those of an attacker stay in memory, with all that they have received."""
    ended: list[weakref.ref[Connection]] = []
    over = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        await connection.accept(credentials(B, A))
        while await connection.read(DEADLINE):
            pass
        assert connection.refused is not None
        connection.close()
        ended.append(weakref.ref(connection))
        over.set()

    async def main() -> None:
        server = await asyncio.start_server(accept, HOST, 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            client = credentials(A, B).client()
            done = client.shake(b"")
            while not done:
                writer.write(client.to_send())
                done = client.shake(await reader.read(1 << 16))
            # A record of TLS as by RFC 8446, section 5.2.
            writer.write(client.to_send() + b"\x17\x03\x03\x00\x20" + bytes(32))
            await asyncio.wait_for(over.wait(), DEADLINE)
            await until(lambda: ended[0]() is None)
            writer.close()

    run_uncollected(main())


@pytest.mark.parametrize("begins", [b"", b"\x16\x03\x01"], ids=["at once", "in the handshake"])
def test_a_connection_that_is_reset_holds_nothing(begins: bytes) -> None:
    """The stream keeps the error of the reset, and raises it to whoever reads."""
    ended: list[weakref.ref[Connection]] = []
    accepted = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        ended.append(weakref.ref(connection))
        accepted.set()
        with contextlib.suppress(OSError, Refused):
            await connection.accept(credentials(B, A))
        connection.abort()

    async def main() -> None:
        server = await asyncio.start_server(accept, HOST, 0)
        async with server:
            with socket.create_connection(server.sockets[0].getsockname()) as client:
                client.sendall(begins)
                await asyncio.wait_for(accepted.wait(), DEADLINE)
                # Its end is a reset: socket(7).
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await until(lambda: ended[0]() is None)

    run_uncollected(main())


def test_many_keys_below_the_root_leave_places_for_those_of_the_root() -> None:
    """The holder of a key makes as many as there are places, and more."""

    async def main() -> None:
        minted = [SigningKey.generate() for _ in range(6)]
        shared = SessionContext(credentials=credentials(B, A, *minted), per_party=2)
        node = Syncing(Writer().log(), max_sessions=4, shared=shared)
        async with running(node):
            node.sync.prefer(frozenset((A.public, B.public)))
            held = [await Connection.open(HOST, node.port, credentials(key, B)) for key in minted]
            for connection in held[4:]:
                assert b"busy" in (await connection.read(DEADLINE) or b"")
            ours = SessionContext(credentials=credentials(A, B))
            assert (await sync_with(Writer().log(), HOST, node.port, shared=ours)).equal
            for connection in held:
                connection.abort()

    run(main())


def test_strangers_that_say_nothing_take_no_place() -> None:
    async def main() -> None:
        shared = SessionContext(credentials=credentials(B, A))
        async with serving(Writer().log(), shared, max_sessions=1) as server:
            idle = [await asyncio.open_connection(HOST, server.port) for _ in range(8)]
            ours = SessionContext(credentials=credentials(A, B))
            assert (await sync_with(Writer().log(), HOST, server.port, shared=ours)).equal
            for reader, writer in idle:
                # Cut off, or waiting for its end.
                with contextlib.suppress(OSError):
                    assert await asyncio.wait_for(reader.read(), DEADLINE) == b""
                writer.close()

    run(main())


def test_a_revoke_ends_the_sessions_of_its_key() -> None:
    async def main() -> None:
        shared = SessionContext(credentials=credentials(B, A))
        async with serving(Writer().log(), shared) as server:
            ends: list[Result] = []

            async def member() -> None:
                connection = await Connection.open(HOST, server.port, credentials(A, B))
                loop = asyncio.get_running_loop()
                began = loop.time()
                # It never closes by itself.
                while await connection.read(DEADLINE):
                    pass
                assert loop.time() - began < DEADLINE
                connection.abort()

            task = asyncio.create_task(member())
            await until(lambda: shared.sessions)
            (session,) = shared.sessions
            assert isinstance(session, Session) and session.key == A.public
            began = asyncio.get_running_loop().time()
            session.expel()
            await task
            assert asyncio.get_running_loop().time() - began < 2.0
            assert not ends

    run(main())


def test_a_revoke_between_the_handshake_and_the_session(recwarn: pytest.WarningsRecorder) -> None:
    """It ends before its parts have begun, and leaves none of them behind."""

    async def main() -> None:
        log = Writer().log()
        async with serving(log, SessionContext(credentials=credentials(B, A))) as server:
            connection = await Connection.open(HOST, server.port, credentials(A, B))
            shared = SessionContext(credentials=credentials(A))
            core = core_of(log, Role.INITIATOR, HOST, b"", 0, None, shared)
            session = Session(core, connection, (HOST, server.port), shared)
            assert (await session.run()).reason is Reason.UNKNOWN_KEY

    run(main())
    gc.collect()
    assert not [str(warning.message) for warning in recwarn]


def test_tls_leaves_half_a_connection_open() -> None:
    """The sessions of BaseFS end with a half-closed connection, which asyncio's own TLS cannot have."""

    async def main() -> None:
        ready: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = Connection(reader, writer)
            await connection.accept(credentials(B, A))
            ready.set_result(connection)

        server = await asyncio.start_server(accept, HOST, 0, family=socket.AF_INET)
        ours = await Connection.open(HOST, server.sockets[0].getsockname()[1], credentials(A, B))
        theirs = await ready
        ours.write(b"last words")
        ours.write_eof()
        assert await theirs.read(DEADLINE) == b"last words"
        assert await theirs.read(DEADLINE) == b""
        theirs.write(b"answer")
        assert await ours.read(DEADLINE) == b"answer"
        await until(lambda: theirs.outstanding == 0)
        assert theirs.flow(100).acknowledged == 100
        for connection in (ours, theirs):
            await connection.close_within(1.0)
        server.close()
        await server.wait_closed()

    run(main())


def test_a_node_lets_in_and_sends_away_as_it_is_told() -> None:
    async def main() -> None:
        one = Syncing(Writer().log(), interval=0.05, degree=1, shared=SessionContext(credentials=credentials(A, B)))
        two = Syncing(Writer().log(), interval=0.05, degree=1, shared=SessionContext(credentials=credentials(B)))
        async with running(one, two):
            here, there = (HOST, one.port), (HOST, two.port)
            one.peers, two.peers = (lambda: [there]), (lambda: [here])
            await until(lambda: one.sync.contact(there).trouble.startswith("it turned this node away: unknown key"))
            assert not one.sync.standing and not two.sync.standing
            await two.sync.trust(frozenset((A.public, B.public)), B)
            await until(lambda: one.sync.standing and two.sync.standing)
            await until(lambda: one.sync.key_at(there) == B.public)
            began = asyncio.get_running_loop().time()
            await two.sync.trust(frozenset((B.public,)), B)
            await until(lambda: not one.sync.standing and not two.sync.standing)
            assert asyncio.get_running_loop().time() - began < 2.0
            # By another key of the same node it is a member again.
            await two.sync.trust(frozenset((STRANGER.public, B.public)), B)
            await one.sync.trust(frozenset((STRANGER.public, B.public)), STRANGER)
            await until(lambda: one.sync.standing and two.sync.standing)

    run(main())


def test_the_sessions_of_a_revoked_key_end_before_the_other_keys_are_let_in(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "basefs.sync")

    async def main() -> None:
        one = Syncing(Writer().log(), interval=0.05, degree=1, shared=SessionContext(credentials=credentials(A, B)))
        trusting = credentials(B, A)
        two = Syncing(Writer().log(), interval=0.05, degree=1, shared=SessionContext(credentials=trusting))
        async with running(one, two):
            there = (HOST, two.port)
            one.peers = lambda: [there]
            await until(lambda: one.sync.standing and two.sync.standing)
            loop, gate = asyncio.get_running_loop(), threading.Event()
            # Threads let in the keys, so these have to wait.
            loop.set_default_executor(ThreadPoolExecutor(1))
            loop.run_in_executor(None, gate.wait)
            try:
                changing = asyncio.ensure_future(two.sync.trust(frozenset((B.public, STRANGER.public)), B))
                await asyncio.sleep(0)  # its first step
                assert not changing.done() and trusting.trusted == frozenset()
                assert "is no member any more" in caplog.text
            finally:
                gate.set()
            await changing
            assert trusting.trusted == {B.public, STRANGER.public}
            await until(lambda: not one.sync.standing and not two.sync.standing)

    run(main())


def test_a_key_that_is_no_longer_trusted_ends_no_handshake_with_the_old_contexts() -> None:
    theirs = credentials(B, A, STRANGER)
    theirs.narrow([STRANGER.public])
    with pytest.raises(Refused, match="not known here"):
        pair(credentials(A, B), theirs)
    theirs.update([A.public, STRANGER.public])
    assert pair(credentials(A, B), theirs)[1].peer == A.public


async def _stands(node: Syncing, key: SigningKey, log: Digest, port: int) -> tuple[Connection, bool]:
    """Tell a node of a log as a member that says it answers at this port; whether the session stands then."""
    connection = await Connection.open(HOST, node.port, credentials(key, B))
    ours = node.log.digest()
    connection.write(encode(Hash(VERSION, ROOT.hash, ours, port)) + encode(Stay()))
    heard = b""
    while b"STAY" not in heard and b"CLOSE" not in heard:
        data = await connection.read(DEADLINE)
        assert data, heard
        heard += data
    stands = b"STAY" in heard
    if stands:
        connection.write(encode(Root(log, 0)))
    return connection, stands


def test_nobody_speaks_for_a_member_at_whose_address_another_key_answers() -> None:
    async def main() -> None:
        shared = SessionContext(credentials=credentials(B, A, STRANGER))
        node = Syncing(Writer().log(), degree=3, shared=shared)
        member = Syncing(Writer().log(), shared=SessionContext(credentials=credentials(A, B)))
        async with running(node, member):
            there = (HOST, member.port)
            await node.sync.pull(there, "to know who is there")
            known = node.sync.contact(there).log
            liar, stands = await _stands(node, STRANGER, Digest(bytes(28), 99), member.port)
            assert not stands
            await until(lambda: len(node.ends) == 2)
            assert node.ends[-1][0] == (HOST, 0)
            assert node.sync.contact(there).log == known and not node.sync.standing
            # The member itself is believed.
            told = Digest(bytes(28), 77)
            honest, stands = await _stands(node, A, told, member.port)
            assert stands
            await until(lambda: node.sync.contact(there).log == told)
            for connection in (liar, honest):
                connection.abort()

    run(main())


def test_a_member_has_one_session_that_stands_whatever_ports_it_tells() -> None:
    async def main() -> None:
        node = Syncing(Writer().log(), degree=3, shared=SessionContext(credentials=credentials(B, A, STRANGER)))
        async with running(node):
            log = Digest(bytes(28), 1)
            found = [await _stands(node, key, log, port) for key in (A, STRANGER) for port in (1, 2, 3)]
            assert [stands for _, stands in found] == [True, False, False] * 2
            for connection, _ in found:
                connection.abort()

    run(main())


def test_strangers_of_many_addresses_do_not_keep_a_member_out_that_was_there_before() -> None:
    """Each address of 127.0.0.0/8 counts by itself, as those of as many machines would."""

    async def main() -> None:
        shared = SessionContext(credentials=credentials(B, A))
        server = SyncServer(Writer().log(), HOST, 0, max_sessions=4, shared=shared)
        await server.start()
        ours = SessionContext(credentials=credentials(A, B))
        try:
            assert (await sync_with(Writer().log(), HOST, server.port, shared=ours)).reason is Reason.COMPLETE
            silent = []
            for number in range(2, 22):
                for _ in range(10):
                    local = (f"127.0.0.{number}", 0)
                    silent.append(await asyncio.open_connection(HOST, server.port, local_addr=local))
            for _ in range(3):
                result = await sync_with(Writer().log(), HOST, server.port, shared=ours)
                assert result.reason is Reason.COMPLETE, result
            for _, writer in silent:
                writer.close()
        finally:
            await server.stop()

    run(main())
