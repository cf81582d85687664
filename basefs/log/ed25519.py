"""Ed25519 signatures on which all libraries agree (docs/formats.md, section 4).

Libraries differ in signatures that no honest key makes.  Two rules leave none of these: a public key is the canonical
encoding of a point of prime order, and the first half of a signature (R) is not the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

try:
    from nacl.bindings import crypto_core_ed25519_is_valid_point, crypto_sign_open, has_crypto_core_ed25519
    from nacl.exceptions import CryptoError
except ImportError:
    _HAS_LIBSODIUM = False
else:
    _HAS_LIBSODIUM = True

PUBLIC_KEY_SIZE = 32
SIGNATURE_SIZE = 64
_PRIME = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _PRIME) % _PRIME
_ROOT_OF_MINUS_1 = pow(2, (_PRIME - 1) // 4, _PRIME)
_IDENTITY = b"\x01" + bytes(31)

#: Extended coordinates: x / z, y / z, z, x * y / z.
_Point = tuple[int, int, int, int]
#: Takes message, signature and public key; tells whether they belong together.
Verifier = Callable[[bytes, bytes, bytes], bool]


def is_signed(message: bytes, signature: bytes, public: bytes) -> bool:
    """Whether a signature of 64 bytes is right, for a public key that `is_sound`."""
    return signature[:32] != _IDENTITY and _verify(message, signature, public)


@lru_cache(maxsize=4096)
def is_sound(public: bytes) -> bool:
    """Whether bytes are the canonical encoding of a point of prime order, and so a key."""
    return len(public) == PUBLIC_KEY_SIZE and _has_prime_order(public)


def _python(public: bytes) -> bool:
    y = int.from_bytes(public, "little") & (2**255 - 1)
    if y >= _PRIME:
        return False
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _PRIME) % _PRIME
    x = pow(square, (_PRIME + 3) // 8, _PRIME)
    if (x * x - square) % _PRIME:
        x = x * _ROOT_OF_MINUS_1 % _PRIME
    if x == 0 or (x * x - square) % _PRIME:
        return False
    if x & 1 != public[31] >> 7:
        x = _PRIME - x
    x, y, z, _ = _times((x, y, 1, x * y % _PRIME), _ORDER)
    return x == 0 and y == z


def _times(point: _Point, factor: int) -> _Point:
    product = (0, 1, 1, 0)
    while factor:
        if factor & 1:
            product = _plus(product, point)
        point = _plus(point, point)
        factor >>= 1
    return product


def _plus(left: _Point, right: _Point) -> _Point:
    a = (left[1] - left[0]) * (right[1] - right[0])
    b = (left[1] + left[0]) * (right[1] + right[0])
    c = 2 * _D * left[3] * right[3]
    d = 2 * left[2] * right[2]
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _PRIME, g * h % _PRIME, f * g % _PRIME, e * h % _PRIME


def _openssl(message: bytes, signature: bytes, public: bytes) -> bool:
    try:
        _public_key(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=1024)
def _public_key(public: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public)


def _libsodium(message: bytes, signature: bytes, public: bytes) -> bool:
    try:
        crypto_sign_open(signature + message, public)
    except CryptoError:
        return False
    return True


#: The libraries that are installed; the last one verifies.  libsodium takes half the time (`pip install basefs[fast]`).
LIBRARIES: dict[str, Verifier] = {"OpenSSL": _openssl}
if _HAS_LIBSODIUM:
    LIBRARIES["libsodium"] = _libsodium
_verify = [*LIBRARIES.values()][-1]
#: What tells whether 32 bytes are a key; the last one does.  libsodium takes 0.08 ms instead of 4.
KEY_CHECKS: dict[str, Callable[[bytes], bool]] = {"Python": _python}
if _HAS_LIBSODIUM and has_crypto_core_ed25519:
    KEY_CHECKS["libsodium"] = crypto_core_ed25519_is_valid_point
_has_prime_order = [*KEY_CHECKS.values()][-1]
