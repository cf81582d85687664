"""What all sessions of a node share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from basefs.sync.net.contacts import Contact, Contacts
from basefs.sync.net.schedule import Address
from basefs.sync.net.traffic import Traffic
from basefs.sync.net.uplink import Uplink
from basefs.sync.session.claims import Claims
from basefs.sync.session.timers import Awake


@dataclass(frozen=True, slots=True)
class Shared:
    """One for each node.

    Attributes:
        traffic: what all sessions have moved, those that are open included.
        uplink: whose turn it is to upload.
        claims: which session brings what.
        contacts: what is known of the peers.
        awake: the time by which sessions judge their peers.
        turns: whose turn it is to work, of the sessions that compare: one slice a round of the event loop, so that
            what else the node does waits for one of them and not for all.
        adding: held by the session whose batch is on its way into the log, of the sessions that compare.
        adding_news: the same of those that stand: a peer that sends much does not keep news waiting.
    """

    traffic: Traffic = field(default_factory=Traffic)
    uplink: Uplink = field(default_factory=Uplink)
    claims: Claims = field(default_factory=Claims)
    contacts: Contacts = field(default_factory=Contacts)
    awake: Awake = field(default_factory=Awake)
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    adding: asyncio.Lock = field(default_factory=asyncio.Lock)
    adding_news: asyncio.Lock = field(default_factory=asyncio.Lock)

    def contact(self, address: Address) -> Contact:
        """What is known of a peer, with the bytes of the sessions that are open."""
        contact, now = self.contacts.get(address), self.traffic.open_with(address)
        return replace(contact, sent=contact.sent + now.bytes_sent, received=contact.received + now.bytes_received)
