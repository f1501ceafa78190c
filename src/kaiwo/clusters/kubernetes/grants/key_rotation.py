"""Keep the keys of grants in a Secret, publish their public parts to the agents, and sign what runs already.

The installation creates the Secret and the ConfigMap, both empty. Only the leader writes them.
The order matters, because an agent that knows a key refuses whatever is not signed:
- At the first start, pods that were bound earlier are signed before any key is published.
- A later key is published before it signs, and the former one stays until every running pod has a new signature.
Never: signs a grant without a valid signature after the first start, whoever wrote it.
"""

import asyncio
import base64
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, Shares, read_grant
from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.grants.grant_signer import GrantSigner
from kaiwo.clusters.kubernetes.grants.key_set import LIFE_S, KeySet, renew
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.grant_signature import KEYS_FIELD, SIGNATURE_ANNOTATION

CHECK_S = 60.0
WRITES_AT_ONCE = 8
_NO_SECRET = (403, 404)
Refuse = Callable[[CachedPod, str, str], None]  # the pod, a reason for machines, a sentence


class GrantKeySite(NamedTuple):
    """The Secret and the ConfigMap share one name."""

    name: str
    namespace: str

    @property
    def secret(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/secrets/{self.name}"

    @property
    def config_map(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{self.name}"


class GrantKeyRotation:
    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        site: GrantKeySite,
        refuse: Refuse,
        report: Callable[..., None],
        now_s: Callable[[], int],
        life_s: int = LIFE_S,
    ) -> None:
        self._client, self._cache, self._site, self._refuse = client, cache, site, refuse
        self._report, self._now_s, self._life_s = report, now_s, life_s
        self.signer = GrantSigner()
        self._signed_with = ""  # the key with which every running pod is signed
        self._wake = asyncio.Event()
        cache.grants.signatures = self.signer

    async def load(self) -> None:
        """Read the keys before any pod is read. ConfigError when this installation has none."""
        backoff = Backoff(longest_s=5)
        while True:
            try:
                self.signer.use((await self._read())[1])
                return
            except (ApiError, UnreachableError) as error:
                if isinstance(error, ApiError) and error.code in _NO_SECRET:
                    raise ConfigError(
                        f"the keys of grants cannot be read ({error}); install the chart, which creates the Secret "
                        f"{self._site.namespace}/{self._site.name}, or remove --grant-keys",
                        "--grant-keys",
                    ) from error
                self._report("grant-keys-failed", level="warning", error=str(error)[:300])
            await asyncio.sleep(backoff.next_s())

    async def before_leading(self) -> None:
        """Make sure that there is a key: the first Binding of a leader is signed."""
        backoff = Backoff(longest_s=5)
        while True:
            try:
                await self._renew()
                self._wake.set()
                return
            except (ApiError, UnreachableError) as error:
                self._report("grant-keys-failed", level="warning", error=str(error)[:300])
            await asyncio.sleep(backoff.next_s())

    async def run(self, has_synced: Callable[[], Any]) -> None:
        """Renew the keys when they are due, and sign running pods. A standby only reads the keys."""
        await has_synced()
        while True:
            self._wake.clear()
            try:
                if self._client.may_write:
                    await self.maintain()
                else:
                    self._signed_with = ""
                    self.signer.use((await self._read())[1])
            except (ApiError, UnreachableError) as error:  # the keys in use stay valid: log it, and try again
                self._report("grant-keys-failed", level="warning", error=str(error)[:300])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), CHECK_S)

    async def maintain(self) -> None:
        await self._renew()
        keys = self.signer.keys
        if keys.is_first_signing:
            # Agents that know a key from before must accept the new one; agents that know none ask for no signature.
            if published := await self._published():
                await self._publish(published | keys.public_keys)
            if not await self._sign_running():
                return
            await self._publish(keys.public_keys)
            await self._finish_first_signing()
        else:
            await self._sign_running()

    async def _renew(self) -> None:
        """Read, and store a new key when one is due; a new key is used only after it was stored and published."""
        document, known = await self._read()
        is_all_signed = bool(known.current) and self._signed_with == (known.current.id if known.current else "")
        wanted = renew(known, self._now_s(), is_all_signed, self._life_s)
        if wanted != known:
            await self._store(document, wanted)
            self._report("grant-keys-renewed", secret=self._site.secret, keys=len(wanted.keys))
        if not wanted.is_first_signing:
            await self._publish(wanted.public_keys)
        self.signer.use(wanted)

    async def _sign_running(self) -> bool:
        """Sign every running pod whose signature is not of the current key. True: all of them are signed."""
        current = self.signer.keys.current
        if current is None or self._signed_with == current.id:
            return current is not None
        pods = [pod for pod in self._cache.pods.values() if pod.node and not pod.is_finished]
        outdated = [pod for pod in pods if self._cache.placed.is_granted(pod) and not self.signer.is_current(pod)]
        pods_to_sign = self._trusted(outdated) if outdated else []
        limit = asyncio.Semaphore(WRITES_AT_ONCE)

        async def sign(pod: CachedPod) -> bool:
            async with limit:
                return await self._sign(pod)

        is_done = all(await asyncio.gather(*map(sign, pods_to_sign)))
        if pods_to_sign:
            self._report("grants-signed", pods=len(pods_to_sign), key=current.id, is_complete=is_done)
        if is_done:
            self._signed_with = current.id
        return is_done

    def _trusted(self, outdated: Sequence[CachedPod]) -> list[CachedPod]:
        """Those that may be signed: signed with a former key or, at the first start, all whose devices are theirs."""
        signed = [pod for pod in outdated if self.signer.is_signed(pod, pod.annotation(GRANT_ANNOTATION))]
        if not self.signer.keys.is_first_signing:
            return signed
        known = {pod.uid for pod in signed}
        unsigned = [pod for pod in outdated if pod.uid not in known and read_grant(pod.annotations)]
        held: dict[tuple[str, str], list[tuple[CachedPod, int]]] = {}
        for pod in self._cache.pods.values():
            if pod.node and not pod.is_finished and (pod.uid in known or self.signer.is_current(pod)):
                _hold(held, pod, read_grant(pod.annotations) or ())
        for pod in sorted(unsigned, key=lambda pod: (self._cache.placed.starts.since_s(pod), pod.uid)):
            shares = read_grant(pod.annotations) or ()
            if (other := _overlap(held, pod, shares)) is not None:
                sentence = (
                    f"its grant is not signed: {other[0]} belongs to pod {other[1].namespace}/{other[1].name}; "
                    "delete this pod to have it scheduled again"
                )
                self._refuse(pod, "GrantRefused", sentence)
                continue
            _hold(held, pod, shares)
            signed.append(pod)
        return signed

    async def _sign(self, pod: CachedPod) -> bool:
        devices = pod.annotation(GRANT_ANNOTATION)
        notes = {GRANT_ANNOTATION: devices, SIGNATURE_ANNOTATION: self.signer.sign(pod.uid, pod.node, devices)}
        # With the version, the server refuses a signature for a grant that changed meanwhile.
        metadata = {"uid": pod.uid, "resourceVersion": str(pod.version), "annotations": notes}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        try:
            await self._client.patch(path, msgspec.json.encode({"metadata": metadata}))
        except ApiError as error:
            return error.is_not_found  # a changed pod is signed in the next round
        return True

    async def _finish_first_signing(self) -> None:
        document, known = await self._read()
        await self._store(document, msgspec.structs.replace(known, is_first_signing=False))
        self.signer.use(msgspec.structs.replace(self.signer.keys, is_first_signing=False))
        self._cache.touch(pod.key for pod in list(self._cache.pods.values()) if pod.node and not pod.is_finished)

    async def _read(self) -> tuple[dict[str, Any], KeySet]:
        document = msgspec.json.decode(await self._client.read(self._site.secret), type=dict[str, Any])
        text = (document.get("data") or {}).get(KEYS_FIELD)
        return document, msgspec.json.decode(base64.b64decode(text), type=KeySet) if text else KeySet()

    async def _store(self, document: dict[str, Any], keys: KeySet) -> None:
        data = {KEYS_FIELD: base64.b64encode(msgspec.json.encode(keys)).decode()}
        await self._client.write("PUT", self._site.secret, msgspec.json.encode(document | {"data": data}), tries=1)

    async def _published(self) -> dict[str, str]:
        found = msgspec.json.decode(await self._client.read(self._site.config_map), type=dict[str, Any])
        text = (found.get("data") or {}).get(KEYS_FIELD)
        return msgspec.json.decode(text, type=dict[str, str]) if text else {}

    async def _publish(self, public_keys: dict[str, str]) -> None:
        """Only public keys: the private one stays in the Secret, which no node can read."""
        if await self._published() != public_keys:
            body = {"data": {KEYS_FIELD: msgspec.json.encode(public_keys).decode()}}
            await self._client.patch(self._site.config_map, msgspec.json.encode(body))


def _hold(held: dict[tuple[str, str], list[tuple[CachedPod, int]]], pod: CachedPod, shares: Iterable[Any]) -> None:
    for share in shares:
        held.setdefault((pod.node, share.gpu), []).append((pod, share.milli))


def _overlap(
    held: dict[tuple[str, str], list[tuple[CachedPod, int]]], pod: CachedPod, shares: Shares
) -> tuple[str, CachedPod] | None:
    """A device that would be held by more pods than it can serve, and one that holds it."""
    for share in shares:
        others = held.get((pod.node, share.gpu), [])
        if others and share.milli + sum(milli for _, milli in others) > WHOLE_MILLI:
            return share.gpu, others[0][0]
    return None
