"""Talks to one rank's control plane: HTTP over its Unix socket, with one deadline for the whole request.

A rank may be stopped, hold its GIL, die half-way through an answer or not be torch at all. Each of these ends in
NoAnswer with its cause, within the deadline, and never in more memory than the limit.
"""

import http.client
import io
import socket
import struct
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from hangdrill.collector.deadline import Deadline

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["BODY_LIMIT_BYTES", "NoAnswer", "RankSocket", "Silence"]

BODY_LIMIT_BYTES = 256 * 1024 * 1024
_CHUNK_BYTES = 1 << 16
_PEER_CREDENTIALS = struct.Struct("3i")


class Silence(Enum):
    """Why a rank gave no usable answer."""

    ABSENT = "nobody listens on the socket"
    LATE = "no answer before the deadline"
    CUT = "the answer ended early"
    GARBLED = "the answer is not HTTP, or not what was asked for"
    REFUSED = "the handler answered with an error"
    TOO_LARGE = "the answer is larger than the limit"


class NoAnswer(Exception):
    """The rank gave no usable answer. status is the HTTP status when it refused, else 0."""

    def __init__(self, cause: Silence, detail: str = "", *, status: int = 0) -> None:
        self.cause = cause
        self.detail = detail
        self.status = status
        super().__init__(f"{cause.value}{f': {detail}' if detail else ''}")


class RankSocket:
    """The control plane of one rank.

    directory_fd stands for the directory, because a Unix socket's path may have 107 bytes only and run directories
    are longer: /proc/self/fd/<n>/<name> always fits.
    """

    def __init__(self, directory_fd: int, name: str) -> None:
        self._path = f"/proc/self/fd/{directory_fd}/{name}"
        self.pid: int | None = None
        """The listener's pid, as the kernel told at the last connection; None when it is not visible from here."""

    def post(
        self,
        handler: str,
        parameters: Mapping[str, str] | None = None,
        *,
        deadline_s: float,
        limit_bytes: int = BODY_LIMIT_BYTES,
    ) -> bytes:
        """The body of a 200 answer of /handler/<handler>. Raises NoAnswer."""
        deadline = Deadline(deadline_s)
        target = f"/handler/{handler}" + (f"?{urlencode(parameters)}" if parameters else "")
        try:
            stream = self._connect(deadline)
        except (ConnectionError, FileNotFoundError) as error:
            raise NoAnswer(Silence.ABSENT, error.strerror or "") from error
        except (TimeoutError, BlockingIOError) as error:
            raise NoAnswer(Silence.LATE, "its queue of connections is full") from error
        except OSError as error:
            raise NoAnswer(Silence.ABSENT, str(error)) from error
        try:
            return _exchange(_DeadlineSocket(stream, deadline), target, limit_bytes)
        finally:
            stream.close()

    def _connect(self, deadline: Deadline) -> socket.socket:
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            stream.settimeout(max(deadline.left_s(), 0.001))
            stream.connect(self._path)
            credentials = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        except BaseException:
            stream.close()
            raise
        self.pid = _PEER_CREDENTIALS.unpack(credentials)[0] or None
        return stream


def _exchange(stream: "_DeadlineSocket", target: str, limit_bytes: int) -> bytes:
    connection = http.client.HTTPConnection("rank")
    connection.sock = stream
    try:
        connection.request("POST", target, headers={"Connection": "close", "Accept-Encoding": "identity"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise NoAnswer(Silence.REFUSED, _refusal(response), status=response.status)
        return _body(response, limit_bytes)
    except TimeoutError as error:
        raise NoAnswer(Silence.LATE) from error
    except (http.client.IncompleteRead, http.client.RemoteDisconnected, ConnectionError) as error:
        raise NoAnswer(Silence.CUT, type(error).__name__) from error
    except (http.client.HTTPException, ValueError) as error:
        raise NoAnswer(Silence.GARBLED, f"{type(error).__name__}: {error}"[:200]) from error
    except OSError as error:
        raise NoAnswer(Silence.CUT, str(error)) from error


def _refusal(response: http.client.HTTPResponse) -> str:
    """The first words of a refusal, with a limit: it ends in the notes that people read."""
    try:
        words = response.read(300).decode("utf-8", "replace")
    except (http.client.HTTPException, OSError, ValueError):
        words = response.reason
    return f"{response.status} {' '.join(words.split())}"[:200]


def _body(response: http.client.HTTPResponse, limit_bytes: int) -> bytes:
    promised = response.length
    if promised is not None and promised > limit_bytes:
        raise NoAnswer(Silence.TOO_LARGE, f"{promised} bytes promised, {limit_bytes} allowed")
    body = bytearray()
    while chunk := response.read(_CHUNK_BYTES):
        body += chunk
        if len(body) > limit_bytes:
            raise NoAnswer(Silence.TOO_LARGE, f"more than {limit_bytes} bytes")
    if promised is not None and len(body) < promised:
        raise NoAnswer(Silence.CUT, f"{len(body)} of {promised} bytes")
    return bytes(body)


class _DeadlineSocket:
    """A socket of which every operation ends by one common deadline, so that a dripping answer ends too."""

    def __init__(self, stream: socket.socket, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        """As socket.sendall."""
        self._stream.settimeout(_positive(self._deadline))
        self._stream.sendall(data)

    def makefile(self, _mode: str, *_arguments: object) -> io.BufferedReader:
        """What http.client reads the answer from."""
        return io.BufferedReader(_DeadlineReader(self._stream, self._deadline), _CHUNK_BYTES)

    def close(self) -> None:
        """The owner closes the socket itself."""


class _DeadlineReader(io.RawIOBase):
    def __init__(self, stream: socket.socket, deadline: Deadline) -> None:
        super().__init__()
        self._stream = stream
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "Buffer") -> int:
        self._stream.settimeout(_positive(self._deadline))
        return self._stream.recv_into(buffer)


def _positive(deadline: Deadline) -> float:
    left_s = deadline.left_s()
    if left_s <= 0.0:
        raise TimeoutError("the deadline of the whole request has passed")
    return left_s
