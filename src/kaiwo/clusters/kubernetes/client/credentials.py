"""Where the API server is, whom to trust, and who we are.

In:    what a kubeconfig or a pod's files say.   Out: TLS contexts and credentials that stay fresh.
Never: turns verification off unless the kubeconfig says so in so many words, or logs a secret.
"""

import asyncio
import os
import ssl
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, Protocol

from kaiwo.model.errors import ConfigError

REREAD_S = 60.0  # a projected token is replaced at four fifths of its life, which is ten minutes at least


class Credential(NamedTuple):
    """Who we are, for now."""

    token: str = ""
    certificate: bytes = b""  # PEM
    key: bytes = b""
    expires_s: float = float("inf")  # by the wall clock


class Source(Protocol):
    """Where a credential comes from."""

    async def get(self, refused: Credential | None = None) -> Credential:
        """The credential to use now. `refused`: the server did not take this one, so a fresh one is wanted."""


class Fixed:
    """A credential that stays as it is."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def get(self, refused: Credential | None = None) -> Credential:
        return self._credential


class TokenFile:
    """A token that somebody replaces in its file, as the kubelet does."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._credential = Credential()
        self._read_at = float("-inf")

    async def get(self, refused: Credential | None = None) -> Credential:
        if refused is not None or time.monotonic() - self._read_at > REREAD_S:
            self._credential = Credential(await asyncio.to_thread(_read_token, self._path))
            self._read_at = time.monotonic()
        return self._credential


class Trust(NamedTuple):
    """How the server proves who it is."""

    ca_file: str = ""
    ca_data: bytes = b""  # PEM; counts before the file
    is_insecure: bool = False
    server_name: str = ""  # as in the certificate, when it differs from the address

    def context(self, credential: Credential) -> ssl.SSLContext:
        """Built anew for each connection pool, so that a replaced CA file counts."""
        context = ssl.create_default_context()
        if self.is_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.ca_data or self.ca_file:
            context = ssl.create_default_context(
                cafile=None if self.ca_data else self.ca_file, cadata=self.ca_data.decode() if self.ca_data else None
            )
        if credential.certificate:
            _load_certificate(context, credential)
        return context


class Access(NamedTuple):
    """All that is needed to speak to one cluster."""

    server: str
    trust: Trust
    source: Source
    namespace: str = "default"
    name: str = ""  # the context's, for messages


def _read_token(path: str) -> str:
    try:
        token = Path(path).read_text().strip()
    except OSError as error:
        raise ConfigError(f"the token file {path} cannot be read ({error.strerror})", "tokenFile") from error
    if not token:
        raise ConfigError(f"the token file {path} is empty", "tokenFile")
    return token


def _load_certificate(context: ssl.SSLContext, credential: Credential) -> None:
    """OpenSSL reads certificates from files only; this one is gone again at once."""
    descriptor, path = tempfile.mkstemp(prefix="kaiwo-", suffix=".pem")  # readable by us alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(credential.certificate + b"\n" + credential.key)
        context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise ConfigError(
            f"the client certificate cannot be used ({error.reason or error})", "client-certificate"
        ) from (error)
    finally:
        os.unlink(path)
