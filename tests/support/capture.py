"""What passes a network, and whether given bytes are in it, in whichever form programs send bytes."""

from __future__ import annotations

import base64
import contextlib
import re
import select
import socket
import struct
import threading
import urllib.parse
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import zstandard

from tests.support.namespaces import in_namespace

_ETH_P_ALL = 3  # linux/if_ether.h
_SOL_PACKET, _PACKET_STATISTICS = 263, 6  # linux/socket.h, linux/if_packet.h
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_IPV4 = b"\x08\x00"
#: Bytes that wait for the thread, so that it misses nothing.
_BUFFER = 1 << 26
#: Bytes that one compressed part may unpack to.
_MOST = 1 << 22
#: What begins data that zlib, or a Zstandard frame, has compressed.
_PACKED = re.compile(rb"\x78[\x01\x5e\x9c\xda]|\x28\xb5\x2f\xfd")
#: Long enough for a compressed content.
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{40,}")
#: memberlist's `compress` message in MessagePack: the field `Buf`, and the head of its bytes.
_BUF = re.compile(rb"\xa3Buf(?:([\xa0-\xbf])|[\xd9\xc4](.)|[\xda\xc5](..)|[\xdb\xc6](....))", re.DOTALL)

#: Source and destination, each address and port.
Flow = tuple[bytes, int, bytes, int]


@dataclass
class Traffic:
    """What was captured.

    Attributes:
        segments: the parts of each direction of each TCP connection, with their sequence numbers.
        datagrams: the payloads of UDP.
        others: whole frames of any other kind.
        dropped: packets that the kernel could not keep for this process.
    """

    segments: dict[Flow, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))
    datagrams: list[bytes] = field(default_factory=list)
    others: list[bytes] = field(default_factory=list)
    dropped: int = 0

    def add(self, frame: bytes) -> None:
        """Sort a frame of Ethernet in."""
        header = 14 + 4 * (frame[14] & 0x0F)
        protocol = frame[23] if frame[12:14] == _IPV4 else None
        end = 14 + int.from_bytes(frame[16:18], "big")
        if protocol == socket.IPPROTO_TCP:
            source, target, number = struct.unpack_from("!HHI", frame, header)
            flow = (frame[26:30], source, frame[30:34], target)
            payload = frame[header + 4 * (frame[header + 12] >> 4) : end]
            if payload:
                self.segments[flow].append((number, payload))
        elif protocol == socket.IPPROTO_UDP:
            self.datagrams.append(frame[header + 8 : end])
        else:
            self.others.append(frame)

    def streams(self, port: int) -> list[bytes]:
        """What was sent in each direction of each TCP connection with this port, in order and once."""
        return [_in_order(parts) for flow, parts in self.segments.items() if port in (flow[1], flow[3])]


def _in_order(parts: list[tuple[int, bytes]]) -> bytes:
    first = parts[0][0]
    # Sequence numbers wrap around, and a segment may be older than the first that was seen.
    placed = sorted((((number - first + 2**31) % 2**32, payload) for number, payload in parts), key=lambda at: at[0])
    found = bytearray()
    end = placed[0][0]
    for offset, payload in placed:
        new = payload[max(end - offset, 0) :]
        found += new
        end = max(end, offset + len(payload))
    return bytes(found)


@contextlib.contextmanager
def capture(namespace: str) -> Iterator[Traffic]:
    """Everything that the interfaces of a namespace receive meanwhile; complete when the block ends."""
    with in_namespace(namespace):
        listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    traffic, stop = Traffic(), threading.Event()

    def run() -> None:
        while select.select([listener], [], [], 0.1)[0] or not stop.is_set():
            with contextlib.suppress(BlockingIOError):
                frame, (_, _, kind, *_) = listener.recvfrom(1 << 17, socket.MSG_DONTWAIT)
                if kind != socket.PACKET_OUTGOING:
                    traffic.add(frame)

    with listener:
        listener.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield traffic
        finally:
            stop.set()
            thread.join()
            traffic.dropped = struct.unpack("II", listener.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]


def forms(wanted: bytes) -> dict[str, bytes]:
    """The forms in which bytes may stand in others: as they are, and in base64 at each of its three positions."""
    found = {
        "raw": wanted,
        "hex": wanted.hex().encode(),
        "HEX": wanted.hex().upper().encode(),
        "percent": urllib.parse.quote(wanted, safe="").encode(),
    }
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + wanted)
        # The characters that depend on nothing else.
        known = encoded[-(-shift * 8 // 6) : (shift + len(wanted)) * 8 // 6]
        found[f"base64, {shift}"] = known
        found[f"base64url, {shift}"] = known.translate(bytes.maketrans(b"+/", b"-_"))
    return found


class Haystack:
    """Captured bytes, with what is compressed in them."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._whole = b"\n".join(layer for part in parts for layer in _layers(part))

    def __len__(self) -> int:
        return len(self._whole)

    def find(self, wanted: bytes) -> list[str]:
        """The forms in which these bytes are there."""
        return [name for name, form in forms(wanted).items() if form in self._whole]


def _layers(data: bytes, depth: int = 2) -> Iterator[bytes]:
    """Some bytes, and what those parts of them that are compressed unpack to, also where these are in base64."""
    yield data
    if not depth:
        return
    for packed in _BASE64.finditer(data):
        run = packed[0]
        decoded = base64.b64decode(run[: len(run) // 4 * 4])
        if _PACKED.search(decoded):
            yield from _layers(decoded, depth - 1)
    for found in _PACKED.finditer(data):
        yield from _layers(_unpacked(data[found.start() :]), depth - 1)
    for found in _BUF.finditer(data):
        short, *lengths = found.groups()
        size = short[0] & 0x1F if short else next(int.from_bytes(length, "big") for length in lengths if length)
        yield from _layers(lzw(data[found.end() : found.end() + size]), depth - 1)


def _unpacked(data: bytes) -> bytes:
    """What compressed data unpack to, as far as they go; data may follow."""
    try:
        if data.startswith(b"\x78"):
            return zlib.decompressobj().decompress(data, _MOST)
        return zstandard.ZstdDecompressor().decompressobj().decompress(data[:_MOST])
    except (zlib.error, zstandard.ZstdError, ValueError):
        return b""


def lzw(data: bytes) -> bytes:
    """What LZW data of memberlist unpack to: Go's compress/lzw, least significant bit first, literals of 8 bits."""
    clear, eof = 256, 257
    found = bytearray()
    table: list[bytes] = []
    width, last = 9, b""
    number = int.from_bytes(data, "little")
    at, bits = 0, 8 * len(data)
    while at + width <= bits:
        code = number >> at & (1 << width) - 1
        at += width
        if code == eof:
            break
        if code == clear:
            table, width, last = [], 9, b""
            continue
        if code < clear:
            now = bytes((code,))
        elif code - 258 < len(table):
            now = table[code - 258]
        elif code - 258 == len(table) and last:
            now = last + last[:1]
        else:
            break
        found += now
        if last and len(table) < 4096 - 258:
            table.append(last + now[:1])
        last = now
        if len(table) + 258 >= 1 << width and width < 12:
            width += 1
    return bytes(found)
