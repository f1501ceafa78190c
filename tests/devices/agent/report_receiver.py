"""The other end of an agent's stream: an HTTPS server that reads it line by line, and can be rude."""

import datetime
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kaiwo.devices.agent_messages import Line, LineReader
from tests.waiting import PATIENCE_S

TOKEN = "s3cret"


class Receiver:
    """`port` lets a second one take the place of the first."""

    def __init__(self, certificate: Path, port: int = 0, token: str = TOKEN) -> None:
        self.lines: list[Line] = []
        self.paths: list[str] = []
        self.refused = 0
        self.changed = threading.Condition()
        self.is_rude = False  # hangs up after each line
        self.token = token
        receiver = self

        class Take(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                receiver.paths.append(self.path)
                if self.headers["Authorization"] != f"Bearer {receiver.token}":
                    receiver.count_refusal()
                    self.close_connection = True
                    self._say(401, b'{"message": "the token is not known; renew it"}')
                    return
                reader = LineReader()
                while size := int(self.rfile.readline() or b"0", 16):
                    receiver.take(reader, self.rfile.read(size))
                    self.rfile.readline()
                    if receiver.is_rude:
                        self.close_connection = True
                        return
                self.rfile.readline()
                self._say(204)

            def log_message(self, *_: object) -> None:
                return

            def _say(self, status: int, body: bytes = b"") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if body:
                    time.sleep(0.05)  # as from a busy server: the body comes later than the head
                    self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Take)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.url = f"https://localhost:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def take(self, reader: LineReader, data: bytes) -> None:
        with self.changed:
            self.lines += reader.feed(data)
            self.changed.notify_all()

    def count_refusal(self) -> None:
        with self.changed:
            self.refused += 1
            self.changed.notify_all()

    def wait_for(self, kind: type, count: int = 1) -> list[Line]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.of(kind)) >= count, PATIENCE_S), self.lines
        return self.of(kind)

    def of(self, kind: type) -> list[Line]:
        return [line for line in self.lines if isinstance(line, kind)]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def make_certificate(folder: Path, name: str = "localhost") -> Path:
    """Key and certificate in one file; it vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    plain = serialization.NoEncryption()
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )
    return path
