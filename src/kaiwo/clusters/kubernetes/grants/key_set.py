"""The Ed25519 keys that sign grants: the current one, and former public keys that are still accepted.

A new key replaces the current one after `LIFE_S`. The private part of a former key is dropped at once, and the public
part when every running pod has been signed with the new key.
Never: reads a clock or the cluster. `cryptography` is loaded only where grants are signed.
"""

import hashlib

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec.structs import replace

LIFE_S = 90 * 86_400


class GrantKey(msgspec.Struct, frozen=True):
    id: str  # from its public part
    public: str  # hex
    seed: str = ""  # the private part, hex; empty: a former key
    made_s: int = 0


class KeySet(msgspec.Struct, frozen=True):
    """The newest key comes first."""

    keys: tuple[GrantKey, ...] = ()
    # Pods that were bound before there were signatures are being signed; until that is done, no agent asks for one.
    is_first_signing: bool = True

    @property
    def current(self) -> GrantKey | None:
        return next((key for key in self.keys if key.seed), None)

    @property
    def public_keys(self) -> dict[str, str]:
        return {key.id: key.public for key in self.keys}


def make_key(now_s: int) -> GrantKey:
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return GrantKey(key_id(public), public.hex(), private.private_bytes_raw().hex(), now_s)


def key_id(public: bytes) -> str:
    return hashlib.sha256(public).hexdigest()[:16]


def renew(keys: KeySet, now_s: int, is_all_signed: bool, life_s: int = LIFE_S) -> KeySet:
    """The keys to use from now on. `is_all_signed`: every running pod has a signature of the current key."""
    current = keys.current
    if current is None:
        return KeySet((make_key(now_s),))
    if now_s - current.made_s >= life_s:
        return replace(keys, keys=(make_key(now_s), *(replace(key, seed="") for key in keys.keys)))
    return replace(keys, keys=(current,)) if is_all_signed else keys
