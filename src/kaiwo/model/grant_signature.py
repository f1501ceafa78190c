"""What the signature of a grant covers, and how it is written on the pod beside the grant.

The scheduler signs, the agents verify: both use these functions, so that they agree on every byte.
Never: signs or verifies; the keys are at the edges.
"""

from typing import NamedTuple

SIGNATURE_ANNOTATION = "kaiwo.ai/grant-signature"
KEYS_FIELD = "keys.json"  # in the ConfigMap with the public keys: {"KEY ID": "HEX"}
_VERSION = "v1"
_SIGNATURE_BYTES, _KEY_ID_CHARACTERS = 64, 16


class GrantSignature(NamedTuple):
    key_id: str
    value: bytes


def signed_bytes(uid: str, node: str, devices: str) -> bytes:
    """The bytes that are signed. `devices`: the annotation with the grant, as it is on the pod.

    Neither a UID nor the name of a node has a line break, so no two grants have the same bytes.
    """
    return f"kaiwo-grant-{_VERSION}\n{uid}\n{node}\n{devices}".encode()


def write_signature(signature: GrantSignature) -> str:
    """`v1.0123456789abcdef.HEX`."""
    return f"{_VERSION}.{signature.key_id}.{signature.value.hex()}"


def read_signature(text: str) -> GrantSignature | None:
    """None: there is none, or it has another form."""
    version, _, rest = text.partition(".")
    key_id, _, value = rest.partition(".")
    if version != _VERSION or len(key_id) != _KEY_ID_CHARACTERS or len(value) != 2 * _SIGNATURE_BYTES:
        return None
    try:
        return GrantSignature(key_id, bytes.fromhex(value))
    except ValueError:
        return None
