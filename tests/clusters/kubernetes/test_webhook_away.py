"""What the webhooks would have done is not lost while none of them answers: the scheduler holds to the same rules."""

import asyncio
import json
import logging
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.nomination_annotations import NOMINATION_ANNOTATION, write_nomination
from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.client.credentials import ClusterAccess, Credential, FixedCredential, Trust
from kaiwo.clusters.kubernetes.webhooks.http_server import listen
from kaiwo.clusters.kubernetes.webhooks.submitting_user import WebhookPolicy
from kaiwo.clusters.kubernetes.webhooks.webhook_server import WebhookServer
from kaiwo.model.plan import Nomination
from kaiwo.model.planned_start import bounded_run_s
from kaiwo.model.queue import Queue
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.installed_webhooks import queue
from tests.clusters.kubernetes.known_state import KnownState
from tests.clusters.kubernetes.kubectl_cluster import full, opened, whole
from tests.clusters.kubernetes.running_scheduler import scheduled, until_bound, until_said
from tests.conftest import ROOT
from tests.controlplane.plane import Plane, free_ports
from tests.waiting import PATIENCE_S, run, until

POLICY = WebhookPolicy("kaiwo-scheduler")
QUEUES = "/apis/kaiwo.ai/v1alpha2/kaiwoqueues"


@pytest.fixture
def kinds(plane: Plane) -> Iterator[Plane]:
    plane.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwoqueues.kaiwo.ai")
    yield plane
    plane.kubectl("delete", "kaiwoqueues", "--all", check=False)


@asynccontextmanager
async def client_at_nobody() -> AsyncIterator[Client]:
    """Of an API server that is gone."""
    (port,) = free_ports(1)
    client = Client(ClusterAccess(f"http://127.0.0.1:{port}", Trust(), FixedCredential(Credential())))
    try:
        yield client
    finally:
        await client.close()


def queue_of(cache: ClusterCache, name: str) -> str:
    cache.flush()
    return cache.published.workloads[f"default/{name}"].queue


def test_work_that_names_no_queue_is_in_the_queue_of_its_namespace() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("waits"))
    cache.upsert_pod(cached_pod("runs", node="node-1", phase="Running"))
    cache.upsert_pod(cached_pod("named", annotations={"kaiwo.ai/queue": "default"}))
    cache.upsert_pod(cached_pod("slip", node="node-1", phase="Running", annotations={"kaiwo.ai/priority": "high"}))
    assert queue_of(cache, "waits") == "default"
    cache.queue_cache.upsert(Queue("lab", namespaces=("default", "other")))
    assert [queue_of(cache, name) for name in ("waits", "runs", "named", "slip")] == ["lab", "lab", "default", "lab"]
    cache.queue_cache.upsert(Queue("vision", namespaces=("default",)))
    assert queue_of(cache, "waits") == "default"  # two queues list it: nobody can tell which one is meant
    cache.queue_cache.upsert(Queue("vision", parent="lab"))
    assert queue_of(cache, "waits") == "default"  # and one with queues below it takes no work
    cache.queue_cache.delete("vision")
    assert queue_of(cache, "runs") == "lab"


def test_without_webhooks_a_limit_and_a_list_hold(kinds: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(kinds, tmp_path) as kubectl:
            await kubectl.node("node-1")
            await kubectl.create(QUEUES, queue("lab", namespaces=["default"], resources={"gpu": {"limit": 1}}))
            await kubectl.create(QUEUES, queue("theirs", users=["ada"]))
            await kubectl.create(QUEUES, queue("others", namespaces=["robots"]))
            await kubectl.pod("first")
            await until_bound(kubectl, "first")
            await kubectl.pod("second")
            await until_said(kubectl, "second", "queue 'lab' has 0 GPUs left of its limit")
            await kubectl.pod("unstamped", annotations={"kaiwo.ai/queue": "theirs"})
            await until_said(kubectl, "unstamped", "queue 'theirs' takes work of the user ada only, and its user is")
            await kubectl.pod("elsewhere", annotations={"kaiwo.ai/queue": "others"})
            await until_said(kubectl, "elsewhere", "takes work of the namespace robots only, and it is of the")
            await kubectl.pod("hers", annotations={"kaiwo.ai/queue": "theirs", "kaiwo.ai/user": "ada"})
            # Neither a webhook nor a policy compares the name with who wrote it.
            await until_said(kubectl, "hers", "queue 'theirs' takes work of the user ada only, and its user is")

    run(test())


def test_kept_space_goes_when_a_pod_is_bound(plane: Plane) -> None:
    """Also what an earlier leader left on pods that run."""

    async def test() -> None:
        async with opened(plane) as scene:
            note = write_nomination(Nomination(full("w"), "main-0", "node-1", whole(0, 1), 1000, 1024))
            await scene.kubectl.pod("w", gpus=2, nodeName="node-1", annotations={NOMINATION_ANNOTATION: note})
            async with asyncio.timeout(PATIENCE_S):
                while NOMINATION_ANNOTATION in (await scene.kubectl.read_pod("w"))["metadata"].get("annotations", {}):
                    await asyncio.sleep(0.05)
            assert (await scene.kubectl.read_pod("w"))["spec"]["nodeName"] == "node-1"

    run(test())


def test_a_queue_is_admitted_by_the_rules_of_its_kind_before_the_scheduler_answers(kinds: Plane) -> None:
    """It failed with "connection refused": with Helm, queues and scheduler are installed together."""
    manifests = yaml.safe_load_all((ROOT / "deploy" / "manifests" / "scheduler.yaml").read_text())
    hooks = next(each for each in manifests if each["kind"] == "ValidatingWebhookConfiguration")
    hooks["metadata"]["name"] = "t-away"
    (port,) = free_ports(1)
    for hook in hooks["webhooks"]:
        hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}/queues"}
    kinds.kubectl("apply", "-f", "-", text=json.dumps(hooks))
    try:
        assert "created" in kinds.kubectl("create", "-f", "-", text=json.dumps(queue("early", namespaces=["lab"])))
        unsound = queue("unsound", resources={"gpu": {"limit": 4, "models": {"MI300X": {"quota": 8}}}})
        said = kinds.kubectl("create", "-f", "-", text=json.dumps(unsound), check=False)
        assert "the quota of a model is above the limit of all GPUs" in said
        said = kinds.kubectl("create", "-f", "-", text=json.dumps(queue("own", parentQueue="own")), check=False)
        assert "a queue cannot be its own parent" in said
    finally:
        kinds.kubectl("delete", "validatingwebhookconfiguration", "t-away")


def test_a_fraction_and_an_amount_of_memory_stand_on_one_pod_together(kinds: Plane, tmp_path: Path) -> None:
    both = {"kaiwo.ai/gpu-fraction": "0.25", "kaiwo.ai/gpu-memory": "16Gi"}

    async def test() -> None:
        async with scheduled(kinds, tmp_path) as kubectl:
            await kubectl.node("node-1")
            await kubectl.patch("/api/v1/nodes/node-1", {"metadata": {"labels": {"kaiwo.ai/gpu-sharing": "true"}}})
            await kubectl.pod("both", gpus=0, annotations=both)
            bound = await until_bound(kubectl, "both")
            (share,) = json.loads(bound["metadata"]["annotations"]["kaiwo.ai/granted-devices"])
            assert share["milli"] == 250
            assert share["mib"] >= 16 * 1024

    run(test())


@pytest.mark.parametrize("is_reset", [False, True])
def test_an_api_server_that_dies_during_a_review_leaves_no_traceback(
    is_reset: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with client_at_nobody() as client:
            server = WebhookServer(client, KnownState(), POLICY, lambda *_, **__: None)
            listener = listen("127.0.0.1", 0)
            server.start(listener, None)
            _, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
            writer.write(b"POST /work HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\n{")
            await writer.drain()
            await until(lambda: [slot for slot in server.http.slots.all() if not slot.is_idle], "it to be read")
            if is_reset:
                reset = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            writer.close()
            await until(lambda: not server.http.slots.all(), "its connection to end")
            await server.close()

    with caplog.at_level(logging.WARNING):
        run(test())
    assert caplog.text == ""


def test_a_queue_is_reviewed_by_what_was_heard_when_the_api_server_does_not_answer() -> None:
    reports: list[str] = []

    async def test() -> None:
        async with client_at_nobody() as client:
            state = KnownState(Queue("lab"))
            server = WebhookServer(client, state, POLICY, lambda event, **_: reports.append(event))
            assert set(await server.read_queues()) == {"default", "lab"}

    run(test())
    assert reports == ["queues-not-read"]


def test_who_pays_and_whether_it_may_be_stopped_are_written_on_a_pod_when_it_starts(
    plane: Plane, tmp_path: Path
) -> None:
    """Its owner says them, and whoever may change the owner could say something else later."""

    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl:
            await kubectl.node("node-1")
            await kubectl.pod("plain")
            await kubectl.pod("said", annotations={"kaiwo.ai/queue": "default", "kaiwo.ai/preemptible": "true"})
            for name in ("plain", "said"):
                notes = (await until_bound(kubectl, name))["metadata"]["annotations"]
                assert (notes["kaiwo.ai/queue"], notes["kaiwo.ai/preemptible"]) == ("default", "true")
            # The oldest pod of a gang speaks for it. When it is gone, nobody pays for the others but who did before.
            gang = {"kaiwo.ai/gang": "g", "kaiwo.ai/gang-size": "2", "kaiwo.ai/queue": "default"}
            await kubectl.pod("g-0", annotations=gang)
            await kubectl.pod("g-1", annotations=gang | {"kaiwo.ai/queue": "rich", "kaiwo.ai/preemptible": "false"})
            notes = (await until_bound(kubectl, "g-1"))["metadata"]["annotations"]
            assert (notes["kaiwo.ai/queue"], notes["kaiwo.ai/preemptible"]) == ("default", "true")

    run(test())


def test_a_time_that_nothing_enforces_bounds_no_work_that_may_not_be_stopped() -> None:
    cache = cache_with_nodes()
    notes = {"kaiwo.ai/time": "1m", "kaiwo.ai/preemptible": "false"}
    cache.upsert_pod(cached_pod("kept", annotations=notes))
    cache.upsert_pod(cached_pod("stoppable", annotations={"kaiwo.ai/time": "1m"}))
    cache.flush()
    kept, stoppable = (cache.published.workloads[f"default/{name}"] for name in ("kept", "stoppable"))
    assert (kept.time_limit_s, kept.estimate_s, bounded_run_s(kept)) == (0, 60, 0)
    assert (stoppable.time_limit_s, bounded_run_s(stoppable)) == (60, 60)
