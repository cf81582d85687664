"""TLS 1.3 between members, with node keys and without a certificate authority (docs/sync-protocol.md, section 9).

A trust anchor is a key and a name; X.509 is only the container, whose signature nobody checks.  So a node makes an
anchor from each public key that may come in, and a peer shows a certificate of a fresh TLS key, signed by its node key
under the name of that key.  `ssl` then verifies exactly that the peer holds the private half of a key that is trusted.

The filter does no I/O: it takes bytes and gives bytes.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import ssl
from collections.abc import Iterable, Iterator
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from basefs.errors import UsageError
from basefs.log.hashes import sha224
from basefs.log.keys import SigningKey
from basefs.sync.session.result import Reason

#: What is spoken inside of it (RFC 7301).
ALPN = "basefs/3"
#: The first byte of a TLS connection: a handshake record (RFC 8446, section 5.1).  No line of a session begins with it.
FIRST_BYTE = b"\x16"
#: Anchors that are loaded at once: other threads wait meanwhile, a millisecond for each where there are thousands.
_ANCHORS_AT_ONCE = 16
#: Where this Python knows them: 3.10 knows the first, Python 3.13 sets both by itself.
_STRICT = ("VERIFY_X509_STRICT", "VERIFY_X509_PARTIAL_CHAIN")

#: What to do about it goes to the person who tries to come in.
NOT_KNOWN_THERE = (
    "this machine's key is not known there: 'basefs grant' on a member lets it in, with what 'basefs keys' prints here"
)
NOT_KNOWN_HERE = "the key that it shows is not known here: it is another filesystem, or its key was revoked"
NO_TLS = "it does not speak TLS: its filesystem is open, or it is another program"


class Refused(Exception):
    """A connection that TLS ends.

    Attributes:
        reason: why, as sessions end.
        detail: one line.
        by_peer: whether the other side refused.
    """

    def __init__(self, reason: Reason, detail: str, *, by_peer: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.by_peer = by_peer

    def copy(self) -> Refused:
        """One that was never raised.

        The tracebacks of one that was, and of its cause, hold the frames that it came through, and so the connection.
        Where a connection stores it, that is a cycle, which stays in memory until the next search for garbage.
        """
        return Refused(self.reason, self.detail, by_peer=self.by_peer)


class Credentials:
    """The key of this node, and whom it trusts.

    Attributes:
        public: the raw public key.
        trusted: raw public keys; `None`: any server, which only a newcomer trusts whose log is pinned by its identity.
    """

    def __init__(self, key: SigningKey, trusted: Iterable[bytes] | None) -> None:
        """Raises `UsageError` where OpenSSL takes no Ed25519 key."""
        self.public = key.public
        self.trusted: frozenset[bytes] | None = None
        self._chain = _chain(key)
        self._client: ssl.SSLContext
        self._server: ssl.SSLContext
        #: The trusted keys and the own one that the contexts are for.
        self._built: tuple[frozenset[bytes] | None, bytes] | None = None
        self.update(trusted)

    def narrow(self, keys: Iterable[bytes]) -> None:
        """Trust none but these of the trusted keys from now on, at once: no handshake ends with another one."""
        if self.trusted is not None:
            self.trusted &= frozenset(keys)

    def update(self, trusted: Iterable[bytes] | None, key: SigningKey | None = None) -> None:
        """Trust these keys from now on, and show another key if one is given.

        In any thread, but in one at a time.  It takes up to a millisecond of the processor for each new key; where a
        key is trusted no longer, for each of all keys.  So call `narrow` first: handshakes are checked once more at
        their end.
        """
        if key is not None and key.public != self.public:
            self.public, self._chain = key.public, _chain(key)
        keys = None if trusted is None else frozenset(trusted)
        wanted = keys, self.public
        built, shown = self._built or (None, b"")
        if built is not None and keys is not None and built < keys and shown == self.public:
            for context in (self._client, self._server):
                _trust(context, keys - built)
        elif wanted != self._built:
            # Anchors cannot be taken out of a context.
            self._client = self._context(ssl.PROTOCOL_TLS_CLIENT, keys)
            self._server = self._context(ssl.PROTOCOL_TLS_SERVER, keys or ())
        self.trusted, self._built = keys, wanted

    def client(self) -> TlsFilter:
        """The side that opens a connection."""
        return TlsFilter(self, self._client, is_server=False)

    def server(self) -> TlsFilter:
        """The side that accepts one; it trusts nobody if the client trusts anybody."""
        return TlsFilter(self, self._server, is_server=True)

    def _context(self, side: int, trusted: Iterable[bytes] | None) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE if trusted is None else ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols([ALPN])
        for flag in _STRICT:
            context.verify_flags |= getattr(ssl, flag, 0)
        if side == ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0
        try:
            with _memory_file(self._chain) as path:
                context.load_cert_chain(path)
            _trust(context, trusted or ())
        except (ssl.SSLError, OSError) as error:
            raise UsageError(
                f"OpenSSL of this machine takes no Ed25519 keys ({error.strerror or error}): a closed filesystem needs "
                "them; a FIPS policy may forbid them"
            ) from None
        return context


def _trust(context: ssl.SSLContext, keys: Iterable[bytes]) -> None:
    """Add the anchors of keys to a context.  Raises `ssl.SSLError`."""
    anchors = list(map(anchor, keys))
    for start in range(0, len(anchors), _ANCHORS_AT_ONCE):
        context.load_verify_locations(cadata=b"".join(anchors[start : start + _ANCHORS_AT_ONCE]))


class TlsFilter:
    """One side of a TLS connection: ciphertext in and out, plaintext in and out.

    Attributes:
        peer: the raw public key of the node key that the peer has proved, once `shake` returned true; `None` where any
            server is trusted.
        ended: whether the peer said that it sends nothing more.
    """

    def __init__(self, credentials: Credentials, context: ssl.SSLContext, *, is_server: bool) -> None:
        self._credentials = credentials
        self._is_server = is_server
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._heard = 0
        self.peer: bytes | None = None
        self.ended = False

    def shake(self, data: bytes) -> bool:
        """Take a part of the peer's handshake; whether it is complete.  Look for bytes to be sent after each call.

        Raises `Refused`; what is to be sent then tells the peer.
        """
        self._heard += len(data)
        # Honest ones send less than two thousand.
        if self._heard > 32 * 1024:
            raise Refused(Reason.NO_TLS, "its TLS handshake does not end")
        self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise self._refused(error) from None
        if self._object.selected_alpn_protocol() is None:
            raise Refused(Reason.NO_TLS, "it speaks another protocol inside of TLS")
        if self._credentials.trusted is not None or self._is_server:
            self.peer = self._verified_peer()
        return True

    def to_send(self) -> bytes:
        """The ciphertext that is to be sent."""
        return self._outgoing.read()

    def encrypt(self, data: bytes) -> None:
        """Add plaintext to what is to be sent."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._object.write(rest) :]

    def decrypt(self, data: bytes) -> bytes:
        """Take ciphertext; returns the plaintext of all that is whole.  May leave something to be sent.

        Raises `Refused`.
        """
        self._incoming.write(data)
        parts = []
        try:
            # The longest record: more are never decrypted at once.
            while part := self._object.read(16 * 1024):
                parts.append(part)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            if not parts:
                raise self._refused(error) from None
            # The next call raises it again.
        return b"".join(parts)

    def _verified_peer(self) -> bytes:
        """The key whose anchor has verified the peer's certificate: the issuer's name is the anchor's."""
        found = self._object.getpeercert(binary_form=True)
        assert found is not None, "it was required"
        issuer = x509.load_der_x509_certificate(found).issuer
        with contextlib.suppress(ValueError, IndexError):
            public = bytes.fromhex(str(issuer.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value))
            # As it stands now: a revoke may have come during the handshake.
            if public in (self._credentials.trusted or ()) and issuer == _name(public):
                return public
        raise Refused(Reason.UNKNOWN_KEY, NOT_KNOWN_HERE)

    def _refused(self, error: ssl.SSLError) -> Refused:
        what = error.reason or str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            return Refused(Reason.UNKNOWN_KEY, NOT_KNOWN_HERE)
        if "ALERT" in what:
            known = any(word in what for word in ("UNKNOWN_CA", "CERTIFICATE", "DECRYPT_ERROR", "ACCESS_DENIED"))
            detail = NOT_KNOWN_THERE if known else f"it ends TLS: {what.lower().replace('_', ' ')}"
            return Refused(Reason.UNKNOWN_KEY if known else Reason.NO_TLS, detail, by_peer=True)
        if what == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return Refused(Reason.UNKNOWN_KEY, "it shows no key")
        if self.peer is not None:
            return Refused(Reason.LOST, f"what it sends is damaged: {what.lower().replace('_', ' ')}")
        return Refused(Reason.NO_TLS, NO_TLS)


# -- certificates -----------------------------------------------------------------------------------------------------


def _name(public: bytes) -> x509.Name:
    """The name of a key: its 64 hexadecimal digits, as many as the common name of a certificate may have."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, public.hex())])


def _key_id(public: bytes) -> bytes:
    return sha224(public)[:20]


def anchor(public: bytes) -> bytes:
    """The DER of a trust anchor for a key of which only the public half is known.

    Anchors differ only in the key, its name and its identifier, all of one length, and the signature is not looked at;
    so those are put into one that was made before, which takes a hundredth of the time.
    """
    template, model = _template()
    for old, new in (
        (model.hex().encode(), public.hex().encode()),
        (_key_id(model), _key_id(public)),
        (model, public),
    ):
        template = template.replace(old, new)
    return template


@cache
def _template() -> tuple[bytes, bytes]:
    """An anchor, and the key in it."""
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    certificate = (
        _certificate(_name(public), _name(public), key.public_key(), serial=1)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier(_key_id(public)), critical=False)
    )
    return certificate.sign(Ed25519PrivateKey.generate(), None).public_bytes(serialization.Encoding.DER), public


def _chain(key: SigningKey) -> bytes:
    """The PEM of a certificate and of its private key, which is fresh: the node key never enters a TLS context."""
    session_key = Ed25519PrivateKey.generate()
    return _leaf(key, session_key) + session_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _leaf(key: SigningKey, session_key: Ed25519PrivateKey) -> bytes:
    """The PEM of a certificate for a TLS key, signed by a node key under its name."""
    raw = session_key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "basefs")])
    certificate = (
        _certificate(subject, _name(key.public), session_key.public_key(), serial=2)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier(_key_id(key.public), None, None), critical=False)
        .add_extension(x509.SubjectKeyIdentifier(_key_id(raw)), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("basefs")]), critical=False)
    )
    return certificate.sign(key.private, None).public_bytes(serialization.Encoding.PEM)


def _certificate(
    subject: x509.Name, issuer: x509.Name, public: Ed25519PublicKey, *, serial: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(serial)
        # The log decides who is let in, never a clock.
        .not_valid_before(datetime.datetime(2000, 1, 1))
        .not_valid_after(datetime.datetime(9999, 12, 31, 23, 59, 59))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


@contextlib.contextmanager
def _memory_file(data: bytes) -> Iterator[str]:
    """The path of a file that is on no disk: `load_cert_chain` takes paths alone."""
    descriptor = os.memfd_create("basefs-tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
