"""Keys that an SSH agent holds (draft-ietf-sshm-ssh-agent): it signs, and never gives them away."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass, field

from basefs.errors import UsageError
from basefs.log.ed25519 import is_signed

#: Message numbers: section 6.1 of the draft.
_SIGN_REQUEST = 13
_SIGN_RESPONSE = 14
#: Seconds that an agent may take for all that it is asked.  Others wait for the replica's lock meanwhile.
_SECONDS = 5.0
#: Longest answer, bytes.  A signature of Ed25519 is 83.
_MAX_ANSWER = 4096
_KIND = b"ssh-ed25519"


@dataclass(frozen=True, slots=True)
class AgentKey:
    """An Ed25519 key that an agent holds.

    Attributes:
        agent: path of the agent's socket, as in SSH_AUTH_SOCK.
        public: raw public key (32 bytes).
        until: when the time ends in which it may sign, monotonic seconds.
    """

    agent: str
    public: bytes
    until: float = field(default_factory=lambda: time.monotonic() + _SECONDS)

    def sign(self, data: bytes) -> bytes:
        """The agent's signature of some bytes (64 bytes).  Raises `UsageError` where it does not give one."""
        blob = _string(_KIND) + _string(self.public)
        request = bytes([_SIGN_REQUEST]) + _string(blob) + _string(data) + struct.pack(">I", 0)
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(self._left())
                connection.connect(self.agent)
                connection.sendall(_string(request))
                (size,) = struct.unpack(">I", self._read(connection, 4))
                answer = self._read(connection, min(size, _MAX_ANSWER))
        except TimeoutError:
            raise UsageError(
                f"the SSH agent at {self.agent} took more than {_SECONDS:.0f} s, as one does that asks for each use "
                "(ssh-add -c) or is far away: give the private key"
            ) from None
        except OSError as error:
            raise UsageError(f"cannot ask the SSH agent at {self.agent}: {error.strerror or error}") from None
        signature = answer[-64:]
        if answer != bytes([_SIGN_RESPONSE]) + _string(_string(_KIND) + _string(signature)):
            raise UsageError(f"the SSH agent at {self.agent} does not have that key: add it with 'ssh-add'")
        if not is_signed(data, signature, self.public):
            raise UsageError(f"the SSH agent at {self.agent} has made a wrong signature: use another agent")
        return signature

    def _left(self) -> float:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _read(self, connection: socket.socket, size: int) -> bytes:
        found = b""
        while len(found) < size:
            connection.settimeout(self._left())
            part = connection.recv(size - len(found))
            if not part:
                raise ConnectionResetError(0, "it hung up")
            found += part
        return found


def _string(data: bytes) -> bytes:
    """RFC 4251, section 5."""
    return struct.pack(">I", len(data)) + data
