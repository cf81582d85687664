"""Telling the service manager how one of its processes is: sd_notify(3), a datagram of `NAME=value` lines."""

from __future__ import annotations

import contextlib
import os
import socket

from basefs.path import escaped


class ServiceManager:
    """The service manager of a `Type=notify` service; messages are dropped where there is none."""

    def __init__(self, address: str | None) -> None:
        """`address`: a path, or a name in the abstract namespace if it begins with '@'; `None`: there is none."""
        self._address = address
        self._status = ""

    @classmethod
    def from_environment(cls) -> ServiceManager:
        """The one that the environment names, which is then forgotten: what a process starts does not speak for it."""
        return cls(os.environ.pop("NOTIFY_SOCKET", None))

    @property
    def listens(self) -> bool:
        """Whether there is one."""
        return bool(self._address)

    def ready(self) -> None:
        """The filesystem answers."""
        self._send("READY=1")

    def stopping(self) -> None:
        """It begins to end."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """One line about how it is, for people; sent if it is another one than before."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={escaped(text)}")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        name = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        # A manager that went away must not end this process.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(1)
            sender.sendto(message.encode("utf-8", "replace"), name)
