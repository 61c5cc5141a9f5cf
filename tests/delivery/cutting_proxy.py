"""A TCP proxy that lets exactly so many bytes of uploads through and then holds everything: a kill surely hits one."""

import contextlib
import socket
import threading


class CuttingProxy:
    """In front of one server. `allow(n)`: n more bytes from clients; `held` is set once they are used up."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._lock = threading.Lock()
        self._left: int | None = None
        self.passed = 0
        self.held = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def allow(self, count: int | None) -> None:
        """None: everything. Connections of before are cut."""
        self.cut()
        with self._lock:
            self._left, self.passed = count, 0
            self.held.clear()

    def cut(self) -> None:
        """End all connections."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._sockets += [client, server]
            threading.Thread(target=self._pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                part = self._take(data) if counts else data
                sink.sendall(part)
                if len(part) < len(data):
                    return  # the connections stay open, and silent
        if not self.held.is_set():
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    def _take(self, data: bytes) -> bytes:
        with self._lock:
            part = data if self._left is None else data[: self._left]
            self.passed += len(part)
            if self._left is not None:
                self._left -= len(part)
                if len(part) < len(data):
                    self.held.set()
            return part
