"""A TCP switch: connections go on to a target that can be changed, frozen and cut."""

from __future__ import annotations

import contextlib
import socket
import threading


class Switch:
    """Listens on a port of its own. What it read and has not handed on is lost in a cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._flows = threading.Event()
        self._flows.set()
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def turn(self, target: int) -> None:
        """From now on to another port; connections that are open break."""
        self._target = target
        self.cut()

    def freeze(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self._flows.clear()

    def cut(self) -> None:
        """Break all connections."""
        with self._lock:
            broken, self._open = self._open, []
        for one in broken:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        """For good."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._flows.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target), 5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._flows.wait()
                sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
