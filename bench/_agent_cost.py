"""What the node agent costs: the processor time of a real `kaiwo agent` that reports over TLS every second.

In:    seconds to measure.   Out: percent of a core, memory, and how many samples came.
"""

import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kaiwo.devices.agent_messages import LineReader, Sample

WARM_UP_S = 3.0


class Receiver:
    """Takes the stream as Kaiwo's API does: chunk by chunk, line by line."""

    def __init__(self, certificate: str) -> None:
        self.samples: list[Sample] = []
        self.bytes = 0
        receiver = self

        class Take(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                reader = LineReader()
                while size := int(self.rfile.readline() or b"0", 16):
                    receiver.take(reader, self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Take)
        self.server.daemon_threads = True
        self.scheme = "http"
        if certificate:
            trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            trust.load_cert_chain(certificate)
            self.server.socket = trust.wrap_socket(self.server.socket, server_side=True)
            self.scheme = "https"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, reader: LineReader, data: bytes) -> None:
        self.bytes += len(data)
        self.samples += [line for line in reader.feed(data) if isinstance(line, Sample)]

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.server.server_address[1]}"


def agent_cost(seconds: float, root: str = "/") -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        certificate = make_certificate(folder)
        receiver = Receiver(certificate)
        command = [sys.executable, "-m", "kaiwo.cli.main", "agent", "--server", receiver.url, "--root", root]
        command += ["--metrics", "127.0.0.1:0", *(["--ca-file", certificate] if certificate else [])]
        agent = subprocess.Popen(command, env={**os.environ, "KAIWO_TOKEN": "t"}, stderr=subprocess.DEVNULL)
        try:
            time.sleep(WARM_UP_S)
            before, counted = used_s(agent.pid), len(receiver.samples)
            began = time.monotonic()
            time.sleep(seconds)
            took_s, spent_s = time.monotonic() - began, used_s(agent.pid) - before
            memory_mib = resident_mib(agent.pid)
        finally:
            agent.terminate()
            agent.wait(10)
    return {
        "core_percent": round(100 * spent_s / took_s, 3),
        "seconds": round(took_s, 1),
        "samples": len(receiver.samples) - counted,
        "is_encrypted": bool(certificate),
        "bytes_a_sample": round(receiver.bytes / max(1, len(receiver.samples))),
        "resident_mib": memory_mib,
        "gpus": len(receiver.samples[-1].gpus) if receiver.samples else 0,
    }


def make_certificate(folder: str) -> str:
    """Key and certificate in one file; empty without openssl: then the stream is in the clear, on the loopback."""
    openssl = shutil.which("openssl")
    if not openssl:
        return ""
    key, certificate = os.path.join(folder, "key.pem"), os.path.join(folder, "certificate.pem")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return ""
    with open(key, encoding="ascii") as file, open(certificate, "a", encoding="ascii") as both:
        both.write(file.read())
    return certificate


def used_s(pid: int) -> float:
    """Processor time of a process with all its threads, to the nanosecond."""
    used_ns = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
            used_ns += int(file.read().split()[0])
    return used_ns / 1e9


def resident_mib(pid: int) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
