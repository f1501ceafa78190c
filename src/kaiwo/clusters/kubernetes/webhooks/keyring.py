"""When to make new certificates, so that no request is refused meanwhile.

In:    the certificates there are, the time, what the API server trusts already.   Out: those that there should be.
Never: serves a certificate whose authority the API server may not trust yet. A new authority is trusted first, beside
       the old one; it signs when everybody has heard of it; and the old one is forgotten when it is over.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.webhooks.certificates import Signed, make_authority, make_certificate

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
