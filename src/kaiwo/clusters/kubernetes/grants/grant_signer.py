"""Sign grants, and verify the grants on pods: one that the scheduler did not sign counts as none.

Verifying takes 0.1 ms, so each grant is verified once, and one that this process signed never.
"""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.grants.key_set import KeySet
from kaiwo.model.grant_signature import (
    SIGNATURE_ANNOTATION,
    GrantSignature,
    read_signature,
    signed_bytes,
    write_signature,
)

MAX_KNOWN = 200_000


class GrantSigner:
    def __init__(self) -> None:
        self.keys = KeySet()
        self._private: Ed25519PrivateKey | None = None
        self._public: dict[str, Ed25519PublicKey] = {}
        self._known: dict[tuple[str, bytes], bool] = {}  # by signature and what it covers

    def use(self, keys: KeySet) -> None:
        current = keys.current
        self._private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(current.seed)) if current else None
        self._public = {key.id: Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.public)) for key in keys.keys}
        if self.keys.public_keys != keys.public_keys:
            self._known = {}
        self.keys = keys

    def sign(self, uid: str, node: str, devices: str) -> str:
        """The annotation that goes beside the grant; empty while there is no key."""
        return self.seal(signed_bytes(uid, node, devices))

    def seal(self, covered: bytes) -> str:
        current = self.keys.current
        if current is None or self._private is None:
            return ""
        text = write_signature(GrantSignature(current.id, self._private.sign(covered)))
        self._remember((text, covered), True)
        return text

    def is_honoured(self, pod: CachedPod, devices: str) -> bool:
        """The grant counts: it is signed, or it was made before there were signatures."""
        return self.keys.is_first_signing or self.is_signed(pod, devices)

    def is_signed(self, pod: CachedPod, devices: str) -> bool:
        return self.is_sealed(pod.annotation(SIGNATURE_ANNOTATION), signed_bytes(pod.uid, pod.node, devices))

    def is_sealed(self, signature: str, covered: bytes) -> bool:
        if not signature:
            return False
        asked = (signature, covered)
        known = self._known.get(asked)
        return self._remember(asked, self._verify(*asked)) if known is None else known

    def is_current(self, pod: CachedPod) -> bool:
        """The signature names the current key."""
        signature, current = read_signature(pod.annotation(SIGNATURE_ANNOTATION)), self.keys.current
        return signature is not None and current is not None and signature.key_id == current.id

    def _verify(self, text: str, covered: bytes) -> bool:
        signature = read_signature(text)
        key = self._public.get(signature.key_id) if signature else None
        if signature is None or key is None:
            return False
        try:
            key.verify(signature.value, covered)
        except InvalidSignature:
            return False
        return True

    def _remember(self, asked: tuple[str, bytes], is_valid: bool) -> bool:
        if len(self._known) >= MAX_KNOWN:
            self._known = {}
        self._known[asked] = is_valid
        return is_valid
