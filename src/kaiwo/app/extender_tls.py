"""The certificates with which kube-scheduler and the extender know each other, in a folder of KAIWO_HOME.

In:    KAIWO_HOME.   Out: a TLS context that accepts only clients with a certificate of the folder's authority.
Never: replaces a client certificate, which kube-scheduler reads only at its start. Delete the folder for new ones.
"""

import os
import ssl
import time
from pathlib import Path

from kaiwo.model.errors import ConfigError

FOLDER = "extender"
NAMES = ("localhost", "127.0.0.1")
LIFE_S = 20 * 365 * 86_400


def extender_context(home: str) -> ssl.SSLContext:
    """What is missing in the folder is made; the server's certificate is made at every start."""
    from kaiwo.clusters.kubernetes.webhooks.certificates import (
        CertificateUse,
        KeyPair,
        make_authority,
        make_certificate,
    )
    from kaiwo.clusters.kubernetes.webhooks.tls_context import make_context

    folder, now_s = Path(home) / FOLDER, time.time()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _read(folder, "ca")
    if authority is None:
        made = make_authority(now_s, LIFE_S)
        authority = (made.certificate, made.key)
        _write(folder, "ca", authority)
        for name in ("client.crt", "client.key"):  # an earlier authority signed it
            (folder / name).unlink(missing_ok=True)
    signer = KeyPair(*authority)
    if _read(folder, "client") is None:
        _write(folder, "client", make_certificate(signer, ("kube-scheduler",), now_s, LIFE_S, CertificateUse.CLIENT))
    server = make_certificate(signer, NAMES, now_s, LIFE_S)
    return make_context(server, str(folder / "ca.crt"))


def _read(folder: Path, name: str) -> tuple[str, str] | None:
    """The pair of this name; None: there is none."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    if not certificate.exists() and not key.exists():
        return None
    try:
        return certificate.read_text(), key.read_text()
    except OSError as error:
        raise ConfigError(
            f"{error.filename} cannot be read ({error.strerror}); correct it, or delete {folder} and restart "
            "kube-scheduler with the new files",
            "--extender-port",
        ) from error


def _write(folder: Path, name: str, pair: tuple[str, str]) -> None:
    """The key first: a certificate without a key would be found at the next start."""
    for kind, text in (("key", pair[1]), ("crt", pair[0])):
        descriptor = os.open(folder / f"{name}.{kind}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
