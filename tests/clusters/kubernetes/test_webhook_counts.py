"""What the webhooks count: answers, refusals by reason, and times, as Prometheus reads them."""

import asyncio
from typing import Any

import aiohttp
import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from kaiwo.api.routes.metrics import webhook_metrics
from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.client.credentials import ClusterAccess, Credential, FixedCredential, Trust
from kaiwo.clusters.kubernetes.webhooks.http_server import listen
from kaiwo.clusters.kubernetes.webhooks.process_messages import Counted, read_to_scheduler
from kaiwo.clusters.kubernetes.webhooks.process_status import WebhookStatus
from kaiwo.clusters.kubernetes.webhooks.request_counts import BOUNDS_S, RequestCounts
from kaiwo.clusters.kubernetes.webhooks.submitting_user import WebhookPolicy
from kaiwo.clusters.kubernetes.webhooks.webhook_server import WebhookServer
from tests.clusters.kubernetes.known_state import KnownState


class Scraped:
    def __init__(self, tally: RequestCounts) -> None:
        self._status = WebhookStatus()
        message = read_to_scheduler(msgspec.json.encode(tally.as_message()))  # as it comes from the other process
        assert isinstance(message, Counted)
        self._status.add(message)

    def describe(self) -> Any:
        return iter(())

    def collect(self) -> Any:
        return webhook_metrics(self._status)


def scraped(tally: RequestCounts) -> list[str]:
    registry = CollectorRegistry()
    registry.register(Scraped(tally))
    return generate_latest(registry).decode().splitlines()


def review(name: str, kind: str = "Pod", **notes: str) -> bytes:
    spec = {"schedulerName": "kaiwo-scheduler", "containers": [{"name": "c"}]}
    document = {"metadata": {"name": name, "annotations": notes}, "spec": spec}
    request = {"uid": name, "kind": {"kind": kind}, "namespace": "default", "object": document}
    return msgspec.json.encode({"request": request | {"userInfo": {"username": "ada"}}})


def test_answers_are_counted_with_their_reason_and_their_time() -> None:
    async def test() -> list[str]:
        client = Client(ClusterAccess("http://127.0.0.1:9", Trust(), FixedCredential(Credential())))
        webhooks = WebhookServer(
            client, KnownState(), WebhookPolicy("kaiwo-scheduler", frozenset()), lambda *_, **__: None
        )
        listener = listen("127.0.0.1", 0)
        webhooks.start(listener, None)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        bodies = (
            review("good"),
            review("granted", **{"kaiwo.ai/granted-devices": "[]"}),
            review("promised", **{"kaiwo.ai/planned-place": "x"}),
            review("half", **{"kaiwo.ai/gpu-fraction": "7"}),
            review("late", **{"kaiwo.ai/time": "soon"}),
        )
        try:
            async with aiohttp.ClientSession() as session:
                for body in bodies:
                    async with session.post(f"{url}/work", data=body) as answer:
                        assert answer.status == 200
                async with session.post(f"{url}/queues", data=review("lab", "KaiwoQueue")) as answer:
                    assert answer.status == 200  # no API server answers: it is judged by what was heard of the others
                odd = {"uid": "odd", "kind": {"kind": "KaiwoQueue"}, "object": [], "userInfo": {"username": "ada"}}
                async with session.post(f"{url}/queues", data=msgspec.json.encode({"request": odd})) as answer:
                    assert answer.status == 200  # it cannot be reviewed at all: it is broken, and passes
        finally:
            await webhooks.close()
            await client.close()
        return scraped(webhooks.counts)

    lines = asyncio.run(test())
    for line in (
        'kaiwo_webhook_requests_total{answer="changed",webhook="work"} 1.0',
        'kaiwo_webhook_requests_total{answer="refused",webhook="work"} 4.0',
        'kaiwo_webhook_requests_total{answer="broken",webhook="queues"} 1.0',
        'kaiwo_webhook_requests_total{answer="refused",webhook="queues"} 1.0',
        'kaiwo_webhook_refusals_total{reason="stamp",webhook="work"} 2.0',
        'kaiwo_webhook_refusals_total{reason="gpu-request",webhook="work"} 1.0',
        'kaiwo_webhook_refusals_total{reason="annotation",webhook="work"} 1.0',
        'kaiwo_webhook_seconds_bucket{le="+Inf",webhook="work"} 5.0',
        'kaiwo_webhook_seconds_count{webhook="queues"} 2.0',
    ):
        assert line in lines, "\n".join(lines)


def test_a_time_falls_into_every_bucket_from_its_own_on() -> None:
    tally = RequestCounts()
    for took_s in (BOUNDS_S[0], BOUNDS_S[3], 99.0):
        tally.count("work", "passed", "", took_s)
    counts = [count for _, count in tally.buckets("work")]
    assert counts == [1, 1, 1, *[2] * (len(BOUNDS_S) - 3), 3]
    assert scraped(RequestCounts())[0].startswith("# HELP kaiwo_webhook_requests_total")
