"""Serving metrics over HTTP, to a few programs at a time."""

from __future__ import annotations

import socket
import threading
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from basefs.daemon.metrics.collector import Convergence, DaemonCollector
from basefs.errors import DaemonError
from basefs.replica.applied import Applied


class MetricsServer:
    """The metrics of one daemon."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._convergence = Convergence(self._registry)
        ProcessCollector(registry=self._registry)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def applied(self, applied: Applied, now: float) -> None:
        """A change of the log, at a time in UNIX seconds; in any thread."""
        self._convergence.applied(applied, now)

    def start(self, host: str, port: int, collector: DaemonCollector) -> None:
        """Listen, and serve what `collector` finds as well.  Raises `DaemonError`, saying what to do."""
        self._registry.register(collector)
        try:
            self._server = _Server(host, port)
        except OSError as error:
            reason = error.strerror or error
            raise DaemonError(f"cannot serve metrics on {host}:{port}: {reason}; choose another --metrics") from None
        self._server.set_app(make_wsgi_app(self._registry))
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None and self._thread is not None:
            # Wakes its thread, which would otherwise look for an end every half second only.
            self._server.socket.shutdown(socket.SHUT_RDWR)
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


class _Handler(WSGIRequestHandler):
    # Seconds in which a request must have been sent, and an answer taken.
    timeout = 5.0

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: scrapes are not worth a line each."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    # A connection that hangs must not keep the daemon from ending.
    block_on_close = False

    def __init__(self, host: str, port: int) -> None:
        """Raises OSError."""
        # There is no password, so anybody who reaches the port can open some; more are closed at once.
        self._places = threading.BoundedSemaphore(4)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, address = found[0]
        super().__init__((str(address[0]), port), _Handler)

    def server_bind(self) -> None:
        """Without looking up the name of the host, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = str(self.server_address[0]), self.socket.getsockname()[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, if there is a place."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve it, then give its place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that goes away is its own affair."""
