"""The window through which kube-scheduler shows which nodes it judges feasible: a scheduler extender.

In:    its filter calls.   Out: by pod UID, the nodes that passed all its own filters in the last call.
Every node is then refused, so nothing is ever bound and the world stays as it is.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: "{kubeconfig}", qps: 2000, burst: 4000}}
leaderElection: {{leaderElect: false}}
percentageOfNodesToScore: 100
podInitialBackoffSeconds: 600
podMaxBackoffSeconds: 600
profiles:
- schedulerName: kaiwo-scheduler
  plugins: {{postFilter: {{disabled: [{{name: "*"}}]}}}}
extenders:
- urlPrefix: "http://127.0.0.1:{port}"
  filterVerb: filter
  nodeCacheCapable: true
  httpTimeout: 20s
"""


class Shown(dict[str, tuple[str, ...]]):
    """What was shown, by pod UID; and where."""

    port = 0


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A scheduler that was killed hangs up."""


@contextmanager
def listening() -> Iterator[Shown]:
    shown = Shown()

    class Window(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            names = body["NodeNames"] or []
            shown[body["Pod"]["metadata"]["uid"]] = tuple(sorted(names))
            answer = json.dumps({"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(names, "seen")}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None:
            """Not to the terminal."""

    server = _Server(("127.0.0.1", 0), Window)
    shown.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
