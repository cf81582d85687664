"""What is known of each peer from the sessions with it: when, how it went, how many bytes.  Time is an argument."""

from __future__ import annotations

from dataclasses import dataclass

from basefs.sync.result import Reason, Result
from basefs.sync.schedule import Address

#: Peers remembered, about 300 bytes each; far beyond any cluster, so that the table cannot grow for ever.
_MAX_REMEMBERED = 10_000


@dataclass(slots=True)
class Contact:
    """One peer.

    Attributes:
        compared_at: seconds of the loop's clock when both logs were last compared to the end, `None` if never.
        equal: whether they were equal then.
        sent, received: bytes of all sessions that have ended, without TCP.
        trouble: why the last session failed, '' if it did not.
        equal_at: seconds of the same clock when they were last found equal, `None` if never.
    """

    compared_at: float | None = None
    equal: bool = False
    sent: int = 0
    received: int = 0
    trouble: str = ""
    equal_at: float | None = None


class Contacts:
    """The peers of this node, by the address at which they accept sessions."""

    def __init__(self) -> None:
        self._found: dict[Address, Contact] = {}

    def get(self, address: Address) -> Contact:
        """What is known of a peer; nothing if there was no session with it."""
        return self._found.get(address, Contact())

    def ended(self, address: Address, result: Result, now: float) -> None:
        """A session has ended, or has begun to stand."""
        contact = self._found.pop(address, None) or Contact()
        self._found[address] = contact
        if len(self._found) > _MAX_REMEMBERED:
            del self._found[next(iter(self._found))]
        if result.reason is not Reason.COMPLETE:
            contact.trouble = f"{result.reason.value}: {result.detail}"
        else:
            contact.trouble = ""
            if not result.stood:
                contact.compared_at, contact.equal = now, result.equal
                if result.equal:
                    contact.equal_at = now
        contact.sent += result.counters.bytes_sent
        contact.received += result.counters.bytes_received
