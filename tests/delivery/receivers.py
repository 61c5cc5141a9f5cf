"""A server for webhooks that answers as it is told, and remembers what it got."""

import http.server
import json
import threading


class Receiver:
    """A server that answers as it is told, and remembers."""

    def __init__(self) -> None:
        self.got = []
        self.answers = []
        self.pause = threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((dict(self.headers), json.loads(body)))
                answer = receiver.answers.pop(0) if receiver.answers else 200
                if answer == "hang":
                    receiver.pause.wait(60)
                    return
                if answer == "garbage":
                    self.wfile.write(b"\x00\xff not http \x1b[31m\r\n\r\n")
                    return
                self.send_response(answer)
                if answer == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(b"said\x1b[31m so")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/services/T0/SECRETPATH"

    def close(self):
        self.pause.set()
        self.server.shutdown()
        self.server.server_close()
