"""Keep the certificates in a Secret that all replicas share, and tell the API server whom to trust.

In:    a Secret and two webhook configurations that the installation made, empty.   Out: a TLS context that stays good.
Never: makes an object, or writes over what another replica wrote meanwhile: whoever comes second reads again.
"""

import asyncio
import base64
import os
import ssl
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.client.connection import STRATEGIC
from kaiwo.clusters.kubernetes.webhooks.certificates import LIVES, Keyring, Lives, Signed, renew

LOOK_S = 15.0
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_FIELDS = {"authority": ("ca.crt", "ca.key"), "server": ("tls.crt", "tls.key"), "coming": ("next.crt", "next.key")}
AUTHORITY = "ca.crt"  # in the ConfigMap
_LEAVING, _TRUSTED = "former.crt", "trusted.crt"
_END = "-----END CERTIFICATE-----\n"


class Site(NamedTuple):
    """Where the webhooks are in the cluster. Service, Secret and configurations share a name."""

    name: str
    namespace: str
    told: str = ""  # a ConfigMap from which node agents know whom to trust; empty: there are none
    also: tuple[str, ...] = ()  # what node agents call us

    @property
    def host_names(self) -> tuple[str, ...]:
        """What the API server calls us, and what agents do."""
        own = (f"{self.name}.{self.namespace}.svc", f"{self.name}.{self.namespace}.svc.cluster.local")
        return tuple(dict.fromkeys((*own, *self.also)))

    @property
    def config_map(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{self.told}"

    @property
    def secret(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/secrets/{self.name}"

    @property
    def configurations(self) -> tuple[str, ...]:
        base = "/apis/admissionregistration.k8s.io/v1"
        return tuple(f"{base}/{kind}/{self.name}.{self.namespace}" for kind in KINDS)


class Custodian:
    """Looks after the certificates of one installation. `run` it beside the server."""

    def __init__(
        self,
        client: Client,
        site: Site,
        report: Callable[..., None] = lambda *_, **__: None,
        lives: Lives = LIVES,
        look_s: float = LOOK_S,
    ) -> None:
        self._client, self._site, self._report = client, site, report
        self._lives, self._look_s = lives, look_s
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.ring = Keyring()
        self._loaded: Signed | None = None
        self.renewals = self.failures = 0

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._look_s)
            try:
                await self.look()
            except (ApiError, UnreachableError) as error:
                # What is served stays good for weeks: trouble now is told, and tried again.
                self.failures += 1
                self._report("webhook-certificates", level="warning", error=str(error)[:300], failures=self.failures)

    async def look(self) -> None:
        """Read, renew what is late, tell the API server, and serve it; the order is what keeps every request good."""
        document, ring = await self._read()
        is_trusted = await self._publish(ring) if ring.authority else False
        later = renew(ring, self._site.host_names, time.time(), is_trusted, self._lives)
        if later != ring:
            if not await self._keep(document, later):
                return  # another replica was faster; the next look finds what it made
            self.renewals += 1
            self._report("webhook-certificates-renewed", secret=self._site.secret)
            await self._publish(later)
        self.ring = later
        if later.server is not None and later.server != self._loaded:
            load(self.context, later.server)
            self._loaded = later.server

    async def _read(self) -> tuple[dict[str, Any], Keyring]:
        document = msgspec.json.decode(await self._client.read(self._site.secret), type=dict[str, Any])
        data = {key: base64.b64decode(value).decode() for key, value in (document.get("data") or {}).items()}
        found = {
            field: Signed(data[certificate], data[key])
            for field, (certificate, key) in _FIELDS.items()
            if data.get(certificate) and data.get(key)
        }
        leaving = tuple(part + _END for part in data.get(_LEAVING, "").split(_END) if part.strip())
        return document, Keyring(**found, leaving=leaving)

    async def _keep(self, document: dict[str, Any], ring: Keyring) -> bool:
        """False: somebody else changed it since it was read."""
        texts = {_LEAVING: "".join(ring.leaving), _TRUSTED: ring.trusted}
        for field, names in _FIELDS.items():
            texts |= dict(zip(names, getattr(ring, field) or ("", ""), strict=True))
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items() if text}
        try:
            await self._client.write("PUT", self._site.secret, msgspec.json.encode(document | {"data": data}), tries=1)
        except ApiError as error:
            if error.is_conflict:
                return False
            raise
        return True

    async def _publish(self, ring: Keyring) -> bool:
        """Whether all who ask were told to trust all of it; they are told only when they were not."""
        wanted = base64.b64encode(ring.trusted.encode()).decode()
        had_all = await self._tell_agents(ring) if self._site.told else True
        for path in self._site.configurations:
            found = msgspec.json.decode(await self._client.read(path), type=dict[str, Any])
            hooks = found.get("webhooks") or ()
            late = [each["name"] for each in hooks if each["clientConfig"].get("caBundle") != wanted]
            if late:
                had_all = False
                changes = [{"name": name, "clientConfig": {"caBundle": wanted}} for name in late]
                await self._client.patch(path, msgspec.json.encode({"webhooks": changes}), STRATEGIC)
        return had_all

    async def _tell_agents(self, ring: Keyring) -> bool:
        """The keys stay in the Secret, which no node has; this is what everybody may see."""
        found = msgspec.json.decode(await self._client.read(self._site.config_map), type=dict[str, Any])
        if (found.get("data") or {}).get(AUTHORITY) == ring.trusted:
            return True
        await self._client.patch(self._site.config_map, msgspec.json.encode({"data": {AUTHORITY: ring.trusted}}))
        return False


def load(context: ssl.SSLContext, signed: Signed) -> None:
    """New connections see this one from now on; those that are open go on."""
    # OpenSSL reads certificates from files only; this one is gone again at once.
    descriptor, path = tempfile.mkstemp(prefix="kaiwo-", suffix=".pem")  # readable by us alone
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(signed.certificate + signed.key)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)  # what cannot be used must not replace what can
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
