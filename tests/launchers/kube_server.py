"""An API server of the tests' own: real HTTP, the few calls that the cluster launcher makes, and a record of them.

A Job or JobSet that is created gets its pods at once; `finish` ends their containers; a deleted pod is gone with the
next look, unless `stuck` says that its node does not answer.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["KubeServer", "kube_server"]

KINDS = ("pods", "services", "jobs", "jobsets")


class KubeServer(ThreadingHTTPServer):
    """state: kind -> name -> object. refused: kind -> (status, message) of its creation."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.state: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        self.calls: list[tuple[str, str, dict[str, str], Any]] = []
        self.refused: dict[str, tuple[int, str]] = {}
        self.stuck = False

    def finish(self, *codes: int) -> None:
        """End the ranks' containers of the pods, in the order of their names."""
        for pod, code in zip((pod for _, pod in sorted(self.state["pods"].items())), codes, strict=True):
            ended = {"name": "ranks", "ready": False, "restartCount": 0, "image": "i", "imageID": "i"}
            pod["status"] = {
                "phase": "Failed" if code else "Succeeded",
                "containerStatuses": [{**ended, "state": {"terminated": {"exitCode": code}}}],
            }

    def made(self, method: str) -> list[tuple[str, dict[str, str], Any]]:
        """(path, query, body) of the calls of one method."""
        return [(path, query, body) for called, path, query, body in self.calls if called == method]

    def look(self) -> None:
        """Before every list."""

    def log(self, pod: str) -> bytes:
        return f"output of {pod}\n".encode()

    def remove(self, kind: str, name: str, grace_s: int) -> None:
        del self.state[kind][name]

    def create(self, kind: str, body: Any) -> None:
        name = body["metadata"]["name"]
        self.state[kind][name] = body
        job = body["spec"]["replicatedJobs"][0]["template"] if kind == "jobsets" else body
        prefix = f"{name}-ranks-0" if kind == "jobsets" else name
        for index in range(job["spec"]["completions"] if kind in ("jobs", "jobsets") else 0):
            metadata = {
                **job["spec"]["template"]["metadata"],
                "name": f"{prefix}-{index}-abcde",
                "namespace": "default",
            }
            self.state["pods"][metadata["name"]] = {"metadata": metadata, "status": {"phase": "Running"}}


class _Handler(BaseHTTPRequestHandler):
    server: KubeServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        kind, name, rest, query = self._take(None)
        if rest == "log":
            self._answer(200, self.server.log(name), "text/plain")
            return
        self.server.look()
        wanted = dict([query["labelSelector"].split("=")]) if "labelSelector" in query else {}
        items = [
            one
            for one in self.server.state[kind].values()
            if wanted.items() <= one["metadata"].get("labels", {}).items()
        ]
        self._json(200, {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind, _, _, _ = self._take(body)
        if kind in self.server.refused:
            status, message = self.server.refused[kind]
            self._json(status, {"kind": "Status", "message": message})
            return
        self.server.create(kind, body)
        self._json(201, body)

    def do_DELETE(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        kind, name, _, query = self._take(json.loads(self.rfile.read(length)) if length else None)
        if name not in self.server.state[kind]:
            self._json(404, {"kind": "Status", "message": f'{kind} "{name}" not found'})
            return
        if not (kind == "pods" and self.server.stuck):
            self.server.remove(kind, name, int(query.get("gracePeriodSeconds", 30)))
        self._json(200, {"kind": "Status", "status": "Success"})

    def _take(self, body: Any) -> tuple[str, str, str, dict[str, str]]:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.server.calls.append((self.command, parts.path, query, body))
        words = parts.path.split("/namespaces/")[1].split("/")[1:]
        kind, name, rest = [*words, "", ""][:3]
        return kind, name, rest, query

    def _json(self, status: int, value: Any) -> None:
        self._answer(status, json.dumps(value).encode(), "application/json")

    def _answer(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@contextlib.contextmanager
def kube_server(
    directory: Path, make: Callable[[], KubeServer] = KubeServer
) -> Iterator[tuple[KubeServer, dict[str, str]]]:
    """The server, and the variable that names a kubeconfig with the contexts `staging` (this one) and `production`."""
    with make() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        context = {"cluster": "c", "user": "u"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "production",
            "clusters": [
                {"name": "c", "cluster": {"server": address}},
                {"name": "other", "cluster": {"server": "http://127.0.0.1:9"}},
            ],
            "users": [{"name": "u", "user": {}}],
            "contexts": [
                {"name": "staging", "context": context},
                {"name": "production", "context": {**context, "cluster": "other"}},
            ],
        }
        path = directory / "kubeconfig"
        path.write_text(json.dumps(config))
        try:
            yield server, {"KUBECONFIG": str(path)}
        finally:
            server.shutdown()
            thread.join()
