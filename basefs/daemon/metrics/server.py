"""Serving metrics over HTTP, in threads of the client library's own server."""

from __future__ import annotations

import socket
import threading
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from basefs.daemon.metrics.collector import DaemonCollector
from basefs.daemon.metrics.convergence import Convergence
from basefs.errors import DaemonError
from basefs.replica.applied import Applied


class MetricsServer:
    """The metrics of one daemon."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._convergence = Convergence(self._registry)
        ProcessCollector(registry=self._registry)
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None

    def applied(self, applied: Applied, now: float) -> None:
        """A change of the log, at a time in UNIX seconds; in any thread."""
        self._convergence.applied(applied, now)

    def start(self, host: str, port: int, collector: DaemonCollector) -> None:
        """Listen, and serve what `collector` finds as well.  Raises `DaemonError`, saying what to do."""
        self._registry.register(collector)
        try:
            self._server, self._thread = start_http_server(port, host, self._registry)
        except OSError as error:
            reason = error.strerror or error
            raise DaemonError(f"cannot serve metrics on {host}:{port}: {reason}; choose another --metrics") from None

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None and self._thread is not None:
            # Wakes its thread, which would otherwise look for an end every half second only.
            self._server.socket.shutdown(socket.SHUT_RDWR)
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
