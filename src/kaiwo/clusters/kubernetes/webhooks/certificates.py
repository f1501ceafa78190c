"""Keys and certificates of our own: an authority, and what it signs for the webhooks.

In:    names, times.   Out: PEM.
Never: reads a clock; and `cryptography` (30 ms, 9 MB) is loaded only where webhooks are served.

Also: When to make new certificates, so that no request is refused meanwhile.
"""

import datetime
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
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


DAY_S = 86_400


class Lives(NamedTuple):
    """How long things are good."""

    authority_s: float = 730 * DAY_S
    certificate_s: float = 90 * DAY_S
    settle_s: float = 600.0  # so long after it was published every API server trusts a new authority


LIVES = Lives()


class Keyring(msgspec.Struct, frozen=True):
    """Everything that is kept, in one Secret."""

    authority: Signed | None = None  # signs
    server: Signed | None = None  # is served
    coming: Signed | None = None  # is trusted already, and will sign
    leaving: tuple[str, ...] = ()  # certificates of former authorities

    @property
    def trusted(self) -> str:
        """For the API server: what may have signed the certificate that it sees."""
        known = (self.authority.certificate if self.authority else "", self.coming.certificate if self.coming else "")
        return "".join(dict.fromkeys(filter(None, (*known, *self.leaving))))


def renew(ring: Keyring, names: tuple[str, ...], now_s: float, is_trusted: bool, lives: Lives = LIVES) -> Keyring:
    """One step further, or the same. `is_trusted`: the API server was told of all that `ring.trusted` has."""
    ring = msgspec.structs.replace(ring, leaving=tuple(_living(ring.leaving, now_s)))
    if ring.authority is None or _left_s(ring.authority, now_s) <= 0:
        authority = make_authority(now_s, lives.authority_s)
        return Keyring(authority, make_certificate(authority, names, now_s, lives.certificate_s))
    if ring.coming is None and _is_late(ring.authority, now_s):
        return msgspec.structs.replace(ring, coming=make_authority(now_s, lives.authority_s))
    if ring.coming is not None and is_trusted and now_s - ring.coming.times[0] >= lives.settle_s:
        server = make_certificate(ring.coming, names, now_s, lives.certificate_s)
        return Keyring(ring.coming, server, None, (ring.authority.certificate, *ring.leaving))
    if ring.server is None or _is_late(ring.server, now_s) or ring.server.names != names:
        return msgspec.structs.replace(ring, server=make_certificate(ring.authority, names, now_s, lives.certificate_s))
    return ring


def _left_s(signed: Signed, now_s: float) -> float:
    return signed.times[1] - now_s


def _is_late(signed: Signed, now_s: float) -> bool:
    """Two thirds of its time are over."""
    begin_s, end_s = signed.times
    return now_s - begin_s >= 2 * (end_s - begin_s) / 3


def _living(certificates: Iterable[str], now_s: float) -> Iterable[str]:
    return (each for each in certificates if _left_s(Signed(each, ""), now_s) > 0)
