"""Rotate the webhooks' certificates in a Secret that all replicas share, and publish the authority that signs them.

The installation creates the Secret and the two webhook configurations, without certificates. Never creates an object,
or overwrites what another replica wrote meanwhile: the slower replica reads again.
"""

import asyncio
import base64
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.client.connection import STRATEGIC
from kaiwo.clusters.kubernetes.webhooks.certificates import CertificateSet, KeyPair, Lifetimes, renew
from kaiwo.clusters.kubernetes.webhooks.tls_context import load_certificate

ROTATE_S = 15.0
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_FIELDS = {
    "authority": ("ca.crt", "ca.key"),
    "server": ("tls.crt", "tls.key"),
    "next_authority": ("next.crt", "next.key"),
}
AUTHORITY = "ca.crt"  # in the ConfigMap
_FORMER, _TRUSTED = "former.crt", "trusted.crt"
_END = "-----END CERTIFICATE-----\n"


class WebhookSite(NamedTuple):
    """Names in the cluster. The webhooks' Service, Secret and configurations share one."""

    name: str
    namespace: str
    agents_config_map: str = ""  # with the authority, for node agents; empty: there are none
    agent_host_names: tuple[str, ...] = ()  # under which node agents reach Kaiwo

    @property
    def host_names(self) -> tuple[str, ...]:
        own = (f"{self.name}.{self.namespace}.svc", f"{self.name}.{self.namespace}.svc.cluster.local")
        return tuple(dict.fromkeys((*own, *self.agent_host_names)))

    @property
    def config_map(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{self.agents_config_map}"

    @property
    def secret(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/secrets/{self.name}"

    @property
    def configurations(self) -> tuple[str, ...]:
        base = "/apis/admissionregistration.k8s.io/v1"
        return tuple(f"{base}/{kind}/{self.name}.{self.namespace}" for kind in KINDS)


class CertificateRotation:
    """Keeps the certificates of one installation valid. Call `run` in a task next to the server."""

    def __init__(
        self, client: Client, site: WebhookSite, report: Callable[..., None], lifetimes: Lifetimes, rotate_s: float
    ) -> None:
        self._client, self._site, self._report = client, site, report
        self._lifetimes, self._rotate_s = lifetimes, rotate_s
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.current = CertificateSet()
        self._loaded: KeyPair | None = None
        self.on_change: Callable[[KeyPair], None] = lambda _: None  # another certificate is to be served
        self._failures = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._rotate_s)
            try:
                await self.rotate()
            except (ApiError, UnreachableError) as error:
                # The certificate in use stays valid for weeks: log the error, and try again.
                self._failures += 1
                self._report("webhook-certificates", level="warning", error=str(error)[:300], failures=self._failures)

    async def rotate(self) -> None:
        """Read, renew what is due, publish the authority, then serve: in this order no request fails."""
        document, known = await self._read()
        is_trusted = await self._publish(known) if known.authority else False
        renewed = renew(known, self._site.host_names, time.time(), is_trusted, self._lifetimes)
        if renewed != known:
            if not await self._store(document, renewed):
                return  # another replica was faster; the next rotation reads its certificates
            self._report("webhook-certificates-renewed", secret=self._site.secret)
            await self._publish(renewed)
        self.current = renewed
        if renewed.server is not None and renewed.server != self._loaded:
            load_certificate(self.context, renewed.server)
            self._loaded = renewed.server
            self.on_change(renewed.server)

    async def _read(self) -> tuple[dict[str, Any], CertificateSet]:
        document = msgspec.json.decode(await self._client.read(self._site.secret), type=dict[str, Any])
        data = {key: base64.b64decode(value).decode() for key, value in (document.get("data") or {}).items()}
        found = {
            field: KeyPair(data[certificate], data[key])
            for field, (certificate, key) in _FIELDS.items()
            if data.get(certificate) and data.get(key)
        }
        former = tuple(part + _END for part in data.get(_FORMER, "").split(_END) if part.strip())
        return document, CertificateSet(**found, former=former)

    async def _store(self, document: dict[str, Any], certificates: CertificateSet) -> bool:
        """False: another replica changed it since it was read."""
        texts = {_FORMER: "".join(certificates.former), _TRUSTED: certificates.trusted}
        for field, names in _FIELDS.items():
            texts |= dict(zip(names, getattr(certificates, field) or ("", ""), strict=True))
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items() if text}
        try:
            await self._client.write("PUT", self._site.secret, msgspec.json.encode(document | {"data": data}), tries=1)
        except ApiError as error:
            if error.is_conflict:
                return False
            raise
        return True

    async def _publish(self, certificates: CertificateSet) -> bool:
        """Publish the trusted authorities where they are not yet. True: all of them were published already."""
        wanted = base64.b64encode(certificates.trusted.encode()).decode()
        had_all = await self._publish_to_agents(certificates) if self._site.agents_config_map else True
        for path in self._site.configurations:
            found = msgspec.json.decode(await self._client.read(path), type=dict[str, Any])
            hooks = found.get("webhooks") or ()
            outdated = [each["name"] for each in hooks if each["clientConfig"].get("caBundle") != wanted]
            if outdated:
                had_all = False
                changes = [{"name": name, "clientConfig": {"caBundle": wanted}} for name in outdated]
                await self._client.patch(path, msgspec.json.encode({"webhooks": changes}), STRATEGIC)
        return had_all

    async def _publish_to_agents(self, certificates: CertificateSet) -> bool:
        """Only certificates: the keys stay in the Secret, which no node can read."""
        found = msgspec.json.decode(await self._client.read(self._site.config_map), type=dict[str, Any])
        if (found.get("data") or {}).get(AUTHORITY) == certificates.trusted:
            return True
        body = msgspec.json.encode({"data": {AUTHORITY: certificates.trusted}})
        await self._client.patch(self._site.config_map, body)
        return False
