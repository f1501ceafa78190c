"""The agent's small web server: /metrics for Prometheus, /healthz for the kubelet's probe.

In:    what to say when asked.   Out: an address to ask.
"""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Endpoint:
    """Runs on a thread of its own. The text is made when somebody asks, so nobody asking costs nothing."""

    def __init__(self, host: str, port: int, metrics: Callable[[], str], trouble: Callable[[], str]) -> None:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._say(200, metrics())
                elif path == "/healthz":
                    said = trouble()
                    self._say(503 if said else 200, said or "ok\n")
                else:
                    self._say(404, "ask for /metrics or /healthz\n")

            def log_message(self, *_: object) -> None:
                return

            def _say(self, status: int, text: str) -> None:
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", TEXT)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        ThreadingHTTPServer.daemon_threads = True
        self._server = ThreadingHTTPServer((host, port), Answer)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
