"""Certificates of the webhooks: renewed under load without one refused request; and what happens without an answer."""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator

import msgspec
import pytest
from cryptography import x509

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import ApiError, Client
from kaiwo.clusters.kubernetes.client.kubeconfig import read_kubeconfig
from kaiwo.clusters.kubernetes.webhooks.certificate_secret import WebhookSite
from kaiwo.clusters.kubernetes.webhooks.certificates import CertificateSet, Lifetimes, renew
from kaiwo.clusters.kubernetes.webhooks.webhook_supervisor import ProcessOptions, WebhookSupervisor
from tests.clusters.kubernetes.installed_webhooks import CERTIFICATE_OF, Installed, installed, pod, queue
from tests.controlplane.plane import MissingError, Plane, find_programs, free_ports
from tests.waiting import PATIENCE_S, run

OURS = "kaiwo-scheduler"
# A third of its life is left when a certificate is renewed: 4 s, since the machine may be busy.
SHORT = Lifetimes(authority_s=24, certificate_s=12, trust_delay_s=4)
HANDS, PAUSE_S = 6, 0.05  # below the share of its time that the server gives to one address
NAMES = ("kaiwo-webhooks.kaiwo-system.svc",)
DAY_S = 86_400.0


@pytest.fixture
def helmed() -> None:
    try:
        find_programs("helm")
    except MissingError as error:
        pytest.skip(str(error))


def test_a_new_authority_is_trusted_before_it_signs() -> None:
    lives = Lifetimes()
    ring = renew(CertificateSet(), NAMES, 0, False)
    assert ring.server is not None
    assert ring.server.names == NAMES
    assert renew(ring, NAMES, 30 * DAY_S, True) == ring
    later = renew(ring, NAMES, 61 * DAY_S, True)
    assert later.server != ring.server
    assert later.authority == ring.authority  # it has years yet
    at_s = 2 * lives.authority_s / 3 + 1
    both = renew(later, NAMES, at_s, True)
    assert both.next_authority is not None
    assert both.server == later.server
    assert both.trusted.count("BEGIN CERTIFICATE") == 2
    is_published = (at_s + lives.trust_delay_s, False), (at_s + lives.trust_delay_s - 1, True)
    for now_s, is_trusted in is_published:  # not yet told, or told a moment ago
        assert renew(both, NAMES, now_s, is_trusted).authority == later.authority
    moved = renew(both, NAMES, at_s + lives.trust_delay_s, True)
    assert moved.authority == both.next_authority
    assert moved.trusted.count("BEGIN CERTIFICATE") == 2  # who has not heard yet may still show the old one
    after = renew(moved, NAMES, lives.authority_s + 1, True)
    assert after.trusted.count("BEGIN CERTIFICATE") == 1


def test_a_certificate_never_outlives_its_authority_and_follows_its_names() -> None:
    ring = renew(CertificateSet(), NAMES, 0, True, Lifetimes(authority_s=100, certificate_s=1000))
    assert ring.server is not None
    assert ring.authority is not None
    assert ring.server.times[1] <= ring.authority.times[1]
    renamed = renew(ring, ("other.svc",), 1, True, Lifetimes(authority_s=100, certificate_s=1000))
    assert renamed.server is not None
    assert renamed.server.names == ("other.svc",)


@pytest.mark.usefixtures("helmed")
def test_certificates_change_under_load_and_no_request_is_refused(plane: Plane, namespace: str) -> None:
    """Two replicas share the Secret. With `Fail`, a request that meets a certificate nobody trusts is refused."""

    async def test(site: Installed) -> tuple[int, set[int], set[str]]:
        client = Client(read_kubeconfig(plane.kubeconfig))
        refused: list[str] = []
        reported: list[str] = []
        passed = 0
        ports = site.port, free_ports(1)[0]
        async with _replica(site, ports[0], reported) as first, _replica(site, ports[1], reported) as second:
            await _until_asked(client, namespace)
            serials: set[int] = set()
            authorities: set[str] = set()
            done = asyncio.Event()

            async def bring() -> None:
                nonlocal passed
                while not done.is_set():
                    try:
                        await _bring(client, namespace)
                        passed += 1
                    except ApiError as error:
                        refused.append(str(error))
                    await asyncio.sleep(PAUSE_S)

            async def shake_hands() -> None:
                """As an API server does that connects anew, with what the configuration trusts right now."""
                while not done.is_set():
                    for replica in (first, second):
                        serials.add(await _serial(client, site, replica.port))
                    assert first.certificates.current.authority is not None
                    authorities.add(first.certificates.current.authority.certificate)
                    await asyncio.sleep(0.05)

            tasks = [asyncio.create_task(work) for work in (*(bring() for _ in range(HANDS)), shake_hands())]
            try:
                while len(authorities) < 3 and not any(task.done() for task in tasks):
                    await asyncio.sleep(0.1)
            finally:
                done.set()
                await asyncio.gather(*tasks)
            assert refused == []
            assert first.status.counts.answers["work", "broken"] == 0
            assert reported.count("webhook-certificates-renewed") >= len(serials) - 1
        await client.close()
        return passed, serials, authorities

    with installed(plane, "t-rotation", "--set=webhooks.failurePolicy=Fail") as site:
        passed, serials, authorities = run(test(site))
    assert passed > 100
    assert len(serials) >= 4, (passed, len(authorities))


@pytest.mark.usefixtures("helmed")
def test_without_an_answer_work_and_queues_pass_by_the_rules_of_the_cluster(plane: Plane, namespace: str) -> None:
    """The chart's own policies, with nobody there to answer."""
    with installed(plane, "t-webhooks-away") as away:
        assert "a queue cannot be its own parent" in away.create(queue("q", parentQueue="q"))
        assert away.stored(queue("q"))["metadata"]["name"] == "q"
        plane.kubectl("delete", "kaiwoqueue", "q")
        assert away.stored(pod("p", namespace, OURS))["spec"]["schedulerName"] == OURS
        system = pod("p", "kube-system", OURS, annotations={"kaiwo.ai/slip": "x"})
        assert "annotations" in away.stored(system)["metadata"]
        plane.kubectl("delete", "pod", "p", "--namespace=kube-system", "--grace-period=0", "--force")


@contextlib.asynccontextmanager
async def _replica(site: Installed, port: int, reported: list[str]) -> AsyncIterator[WebhookSupervisor]:
    access = read_kubeconfig(site.kubeconfig)
    where = WebhookSite(CERTIFICATE_OF, site.namespace)
    admission = WebhookSupervisor(
        access,
        ClusterCache(),
        where,
        ProcessOptions(str(site.kubeconfig), "", OURS),
        report=lambda event, **_: reported.append(event),
        lifetimes=SHORT,
        rotate_s=0.3,
    )
    try:
        await admission.start("127.0.0.1", port, 10)
        yield admission
    finally:
        await admission.close()


async def _bring(client: Client, namespace: str) -> None:
    body = msgspec.json.encode(pod("brought", namespace, OURS))
    await client.write("POST", f"/api/v1/namespaces/{namespace}/pods", body, params={"dryRun": "All"}, tries=1)


async def _until_asked(client: Client, namespace: str) -> None:
    """An API server takes a moment to learn whom to trust."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await _bring(client, namespace)
            except ApiError:
                await asyncio.sleep(0.1)


async def _serial(client: Client, site: Installed, port: int) -> int:
    """A fresh connection, with what the API server would trust; the number of the certificate that it met."""
    found = msgspec.json.decode(await client.read(WebhookSite(CERTIFICATE_OF, site.namespace).configurations[0]))
    trusted = base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"]).decode()
    context = ssl.create_default_context(cadata=trusted)
    name = f"{CERTIFICATE_OF}.{site.namespace}.svc"
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return x509.load_der_x509_certificate(der).serial_number
