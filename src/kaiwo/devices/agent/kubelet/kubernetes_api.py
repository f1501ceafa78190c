"""A minimal client of the Kubernetes API, with the agent's service account.

The token is read for each call, because the kubelet renews it.
"""

import http.client
import os
import ssl
from urllib.parse import urlsplit

from kaiwo.model.errors import ClusterError

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TIMEOUT_S = 5.0
MAX_BYTES = 64 << 20


class KubernetesApi:
    def __init__(self, address: str = "", account: str = "") -> None:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        self.account = account or ACCOUNT
        self.address = address or (f"https://{f'[{host}]' if ':' in host else host}:{port}" if host else "")
        if not self.address:
            raise ClusterError("no Kubernetes API server: KUBERNETES_SERVICE_HOST is not set")

    def call(self, method: str, path: str, body: bytes = b"", kind: str = "") -> bytes:
        """Send one request; ClusterError unless it succeeds."""
        connection = self._connect()
        try:
            connection.request(method, path, body or None, self._headers(kind))
            answer = connection.getresponse()
            data = answer.read(MAX_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise ClusterError(f"the Kubernetes API at {self.address} does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status >= http.HTTPStatus.MULTIPLE_CHOICES:
            request = f"{method} {path.partition('?')[0]}"
            raise ClusterError(f"the Kubernetes API refused {request}: {answer.status} {answer.reason}")
        return data

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.address)
        host, port = parts.hostname or "", parts.port
        if parts.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        try:
            trust = ssl.create_default_context(cafile=os.path.join(self.account, "ca.crt"))
        except OSError as error:
            raise ClusterError(f"{self.account}/ca.crt can't be used: {error}") from error
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=trust)

    def _headers(self, kind: str) -> dict[str, str]:
        headers = {"Accept": "application/json", **({"Content-Type": kind} if kind else {})}
        try:
            with open(os.path.join(self.account, "token"), encoding="ascii") as file:
                return {**headers, "Authorization": f"Bearer {file.read().strip()}"}
        except FileNotFoundError:
            return headers
