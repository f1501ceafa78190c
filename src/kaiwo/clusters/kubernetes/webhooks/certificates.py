"""Keys and certificates of our own: an authority, and what it signs for the webhooks.

In:    names, times.   Out: PEM.
Never: reads a clock; and `cryptography` (30 ms, 9 MB) is loaded only where webhooks are served.
"""

import datetime
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SKEW = datetime.timedelta(minutes=5)  # clocks of other machines may be behind
NAME = "kaiwo-webhooks"
PEM = serialization.Encoding.PEM


class Signed(NamedTuple):
    """A certificate with its key, as PEM."""

    certificate: str
    key: str

    @property
    def times(self) -> tuple[float, float]:
        """From when and until when it is good, without the allowance for clocks."""
        found = x509.load_pem_x509_certificate(self.certificate.encode())
        return (found.not_valid_before_utc + SKEW).timestamp(), found.not_valid_after_utc.timestamp()

    @property
    def names(self) -> tuple[str, ...]:
        found = x509.load_pem_x509_certificate(self.certificate.encode())
        extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return tuple(extension.value.get_values_for_type(x509.DNSName))


def make_authority(now_s: float, life_s: float) -> Signed:
    """It signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{NAME}-{x509.random_serial_number():x}"[:60])  # another name each time: two may be trusted at once
    builder = (
        _builder(name, name, key.public_key(), now_s, life_s)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _signed(builder.sign(key, hashes.SHA256()), key)


def make_certificate(authority: Signed, names: tuple[str, ...], now_s: float, life_s: float) -> Signed:
    """For a server of these names. It ends with its authority at the latest."""
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signer = serialization.load_pem_private_key(authority.key.encode(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    life_s = min(life_s, authority.times[1] - now_s)
    builder = (
        _builder(_name(names[0][:60]), issuer.subject, key.public_key(), now_s, life_s)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    return _signed(builder.sign(signer, hashes.SHA256()), key)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now_s: float, life_s: float
) -> x509.CertificateBuilder:
    now = datetime.datetime.fromtimestamp(now_s, datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + datetime.timedelta(seconds=life_s))
    )


def _usage(**wanted: bool) -> x509.KeyUsage:
    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: wanted.get(name, False) for name in every})


def _signed(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Signed:
    private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Signed(certificate.public_bytes(PEM).decode(), private.decode())
