"""TLS contexts of the webhooks, from certificates in memory. Never loads `cryptography`, which only makes them."""

import os
import ssl
import tempfile
from pathlib import Path
from typing import Protocol


class CertificatePair(Protocol):
    @property
    def certificate(self) -> str: ...

    @property
    def key(self) -> str: ...


def make_context(pair: CertificatePair, client_ca: str = "") -> ssl.SSLContext:
    """`client_ca`: a file with the authority of client certificates, which are required then."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, pair)
    if client_ca:
        context.load_verify_locations(cadata=Path(client_ca).read_text())
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def load_certificate(context: ssl.SSLContext, pair: CertificatePair) -> None:
    """Use this certificate for new connections; open ones continue with theirs."""
    # OpenSSL reads certificates from files only; this one is removed at once.
    descriptor, path = tempfile.mkstemp(prefix="kaiwo-", suffix=".pem")  # readable by us alone
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(pair.certificate + pair.key)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)  # a broken pair must not replace a working one
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
