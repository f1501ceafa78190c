"""Keys and certificates for a control plane on loopback, made in milliseconds and good for a day.

In:    a folder.   Out: ca.crt, server.crt/.key, one certificate for each user, and the service accounts' signing key.
"""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = datetime.timedelta(days=1)


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("kaiwo-test")
        builder = _builder(self._name, self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._certificate = builder.sign(self._key, hashes.SHA256())
        (folder / "ca.crt").write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def serve(self, name: str = "server") -> None:
        """A certificate for 127.0.0.1 and localhost."""
        names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        self._issue(name, _name(name), ExtendedKeyUsageOID.SERVER_AUTH, x509.SubjectAlternativeName(names))

    def user(self, name: str, group: str = "") -> None:
        """A client certificate: Kubernetes takes the common name as the user and the organisation as the group."""
        self._issue(name, _name(name, group), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def signing_key(self, name: str = "accounts") -> None:
        """What service-account tokens are signed with."""
        _write_key(self.folder / f"{name}.key", ec.generate_private_key(ec.SECP256R1()))

    def _issue(
        self,
        file: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._name, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        (self.folder / f"{file}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(self.folder / f"{file}.key", key)


def _name(common: str, organisation: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organisation:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    return x509.Name(parts)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + LIFE)
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    path.chmod(0o600)
