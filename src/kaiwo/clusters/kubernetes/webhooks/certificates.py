"""Make the webhooks' own authority and certificates, and renew them in steps so that no request fails.

Never reads a clock. `cryptography` (30 ms, 9 MB) is loaded only where webhooks are served.
"""

import datetime
import enum
import ipaddress
from typing import NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec.structs import replace

SKEW = datetime.timedelta(minutes=5)  # for clocks of other machines that are behind
NAME = "kaiwo-webhooks"
PEM = serialization.Encoding.PEM


class KeyPair(NamedTuple):
    """A certificate with its private key, as PEM."""

    certificate: str
    key: str

    @property
    def times(self) -> tuple[float, float]:
        """From when and until when it is valid, without the allowance for clocks."""
        found = x509.load_pem_x509_certificate(self.certificate.encode())
        return (found.not_valid_before_utc + SKEW).timestamp(), found.not_valid_after_utc.timestamp()

    @property
    def names(self) -> tuple[str, ...]:
        found = x509.load_pem_x509_certificate(self.certificate.encode())
        extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return tuple(extension.value.get_values_for_type(x509.DNSName))


def make_authority(now_s: float, life_s: float) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{NAME}-{x509.random_serial_number():x}"[:60])  # unique: two may be trusted at once
    builder = (
        _builder(name, name, key.public_key(), now_s, life_s)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _signed(builder.sign(key, hashes.SHA256()), key)


class CertificateUse(enum.Enum):
    SERVER = ExtendedKeyUsageOID.SERVER_AUTH
    CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


def make_certificate(
    authority: KeyPair,
    names: tuple[str, ...],
    now_s: float,
    life_s: float,
    usage: CertificateUse = CertificateUse.SERVER,
) -> KeyPair:
    """A certificate for a server or client of these names or addresses. It does not outlive its authority."""
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signer = serialization.load_pem_private_key(authority.key.encode(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    life_s = min(life_s, authority.times[1] - now_s)
    builder = (
        _builder(_name(names[0][:60]), issuer.subject, key.public_key(), now_s, life_s)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage.value]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    return _signed(builder.sign(signer, hashes.SHA256()), key)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


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


def _signed(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(certificate.public_bytes(PEM).decode(), private.decode())


DAY_S = 86_400


class Lifetimes(NamedTuple):
    authority_s: float = 730 * DAY_S
    certificate_s: float = 90 * DAY_S
    trust_delay_s: float = 600.0  # after this time every API server trusts a published authority


LIFETIMES = Lifetimes()


class CertificateSet(msgspec.Struct, frozen=True):
    authority: KeyPair | None = None  # signs
    server: KeyPair | None = None  # is served
    next_authority: KeyPair | None = None  # is trusted already, and will sign later
    former: tuple[str, ...] = ()  # certificates of former authorities

    @property
    def trusted(self) -> str:
        """The authorities that may have signed the certificate in use."""
        signers = [pair.certificate for pair in (self.authority, self.next_authority) if pair is not None]
        return "".join(dict.fromkeys((*signers, *self.former)))


def renew(
    known: CertificateSet, names: tuple[str, ...], now_s: float, is_trusted: bool, lifetimes: Lifetimes = LIFETIMES
) -> CertificateSet:
    """The set after the next step that is due, or the same set. `is_trusted`: all of `known.trusted` is published."""
    known = replace(known, former=tuple(each for each in known.former if KeyPair(each, "").times[1] > now_s))
    authority, next_authority = known.authority, known.next_authority
    if authority is None or authority.times[1] <= now_s:
        authority = make_authority(now_s, lifetimes.authority_s)
        return CertificateSet(authority, make_certificate(authority, names, now_s, lifetimes.certificate_s))
    if next_authority is None and _is_due(authority, now_s):
        return replace(known, next_authority=make_authority(now_s, lifetimes.authority_s))
    if next_authority is not None and is_trusted and now_s - next_authority.times[0] >= lifetimes.trust_delay_s:
        server = make_certificate(next_authority, names, now_s, lifetimes.certificate_s)
        return CertificateSet(next_authority, server, None, (authority.certificate, *known.former))
    if known.server is None or _is_due(known.server, now_s) or known.server.names != names:
        return replace(known, server=make_certificate(authority, names, now_s, lifetimes.certificate_s))
    return known


def _is_due(pair: KeyPair, now_s: float) -> bool:
    """Two thirds of its lifetime are over."""
    begin_s, end_s = pair.times
    return now_s - begin_s >= 2 * (end_s - begin_s) / 3
