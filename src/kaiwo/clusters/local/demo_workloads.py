"""The demo of `kaiwo up --demo`: sample queues and workloads of all kinds, labelled kaiwo.ai/demo=true.

Work without the label is never touched. The sample is always the same, and the number of jobs added later is bounded.
"""

import asyncio
import contextlib
import random
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from kaiwo.clusters.protocol import Cluster
from kaiwo.manifests.values.names import ARRAY_LABEL, INDEX_LABEL
from kaiwo.model.cluster_write import ClusterWrite
from kaiwo.model.errors import RefusedError
from kaiwo.model.queue import Queue, QueueAmounts, is_same_queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_record import Program, WorkloadRecord

DEMO = "demo"  # who submits the sample, in the audit
DEMO_LABEL = "kaiwo.ai/demo"
NAMESPACE = "demo"
ANCHOR = f"{NAMESPACE}/too-large"  # never starts, so it exists until the demo is cleared
MINUTE_S = 60
NEW_JOB_S = 45  # of the cluster's time, between two new jobs
POLL_S = 0.25  # of real time
MAX_WAITING = 16  # while more wait, no new jobs are submitted

QUEUES = (
    Queue("research", display_name="Research", gpu=QueueAmounts(quota=24_000, limit=40_000)),
    Queue("vision", parent="research", display_name="Vision", gpu=QueueAmounts(quota=16_000)),
    Queue("language", parent="research", display_name="Language", gpu=QueueAmounts(quota=8_000)),
    Queue("production", display_name="Production", priority=200, gpu=QueueAmounts(quota=24_000)),
    Queue("sandbox", display_name="Sandbox", priority=50, gpu=QueueAmounts(quota=0, limit=2_000)),
)
Item = tuple[Workload, Program]


class ClearedDemo(NamedTuple):
    names: tuple[str, ...]
    stopping: tuple[str, ...]  # of those, the workloads to forget once they have ended
    queues: tuple[str, ...]


async def submit_demo(cluster: Cluster) -> tuple[str, ...]:
    """Create the queues and submit the sample; what exists stays. Returns the submitted names."""
    queues = [queue for queue in QUEUES if await _existing_queue(cluster, queue) is None]
    existing = {record.workload.name for record in cluster.records()}
    items = [item for item in sample() if item[0].name not in existing]
    known = existing | {workload.name for workload, _ in items}
    items = [item for item in items if all(other in known for other in item[0].after)]
    await cluster.abilities.work.put(queues, items, who=DEMO)
    _tell_submitted(cluster, items)
    return tuple(workload.name for workload, _ in items)


async def clear_demo(cluster: Cluster, who: str = "") -> ClearedDemo:
    """Cancel and forget all demo work, and remove those of the demo's queues that were not changed and are not used."""
    names = tuple(record.workload.name for record in _demo_records(cluster))
    stopping = await cluster.abilities.work.remove((), names, who=who)
    removed = []
    for queue in reversed(QUEUES):
        if is_same_queue(queue, await _existing_queue(cluster, queue)):
            with contextlib.suppress(RefusedError):  # it has other work, or other queues below it
                await cluster.abilities.work.remove((queue.name,), (), who=who)
                removed.append(queue.name)
    return ClearedDemo(names, stopping, tuple(removed))


async def keep_submitting(cluster: Cluster, seed: int = 0) -> None:
    """Submit another job from time to time, unless too many wait. Ends when the demo is cleared."""
    rng = random.Random(seed)
    due_s = cluster.now_s() + NEW_JOB_S
    while True:
        await asyncio.sleep(POLL_S)
        if cluster.now_s() < due_s:
            continue
        due_s = cluster.now_s() + NEW_JOB_S
        living = {record.workload.name: record for record in _demo_records(cluster) if not record.state.is_over}
        if ANCHOR not in living:
            return
        if sum(record.started_s == 0 for record in living.values()) > MAX_WAITING:
            continue
        with contextlib.suppress(RefusedError):  # its queue was removed
            job = _next_job(rng, living)
            await cluster.abilities.work.put((), [job], who=DEMO)
            _tell_submitted(cluster, [job])


def _tell_submitted(cluster: Cluster, items: Sequence[Item]) -> None:
    for workload, _ in items:
        cluster.on_write(ClusterWrite("submit", f"workload/{workload.name}", "kaiwo up --demo", by=DEMO))


def sample() -> list[Item]:
    """Workloads that fill about nine tenths of the default cluster, and others that wait for different reasons."""
    eight = Request(cpu_milli=96_000, memory_mib=512 << 10, gpus=8)
    four = Request(cpu_milli=48_000, memory_mib=256 << 10, gpus=4)
    two = Request(16_000, 64 << 10, gpus=2)
    one = Request(8000, 32 << 10, gpus=1)
    half = Request(4000, 16 << 10, gpus=1, gpu_milli=500)
    server = Request(16_000, 64 << 10, gpus=1)
    return [
        # Training.
        _item("llama-pretrain", eight, 38, "language", "ada", "training", pods=2, priority=10),
        _item("vit-large", eight, 22, "vision", "grace", "training"),
        _item("diffusion-xl", four, 31, "vision", "lin", "training", pods=2),
        _item("reward-model", four, 12, "language", "ada", "training"),
        _item("nightly-regression", four, 9, "production", "ci", "training", pods=2, priority=20),
        _item("elastic-finetune", two, 26, "language", "omar", "training", pods=4, minimum=2),
        # Small jobs, on parts of a GPU or none.
        _item("embeddings-a", half, 14, "production", "sam"),
        _item("embeddings-b", half, 17, "production", "sam"),
        _item("quarter-probe", Request(2000, 8 << 10, gpus=1, gpu_milli=250), 7, "sandbox", "noor"),
        _item("vector-index", Request(4000, 32 << 10, gpus=1, gpu_mib=40_000), 19, "production", "sam"),
        _item("kernel-bench", Request(2000, 8 << 10, gpus=1, gpu_mib=16_000), 5, "vision", "grace"),
        _item("tokenize-corpus", Request(64_000, 128 << 10), 11, "language", "omar"),
        _item("log-compaction", Request(8000, 16 << 10), 4, "production", "ci"),
        # Services.
        _item("chat-server", server, 40, "production", "sam", "inference", pods=2, minimum=1),
        _item("search-ranker", Request(8000, 32 << 10, gpus=1, gpu_milli=300), 35, "production", "sam", "inference"),
        _item("notebook-noor", Request(4000, 32 << 10, gpus=1, gpu_milli=250), 33, "sandbox", "noor", "notebook"),
        _item("notebook-lin", Request(4000, 32 << 10, gpus=1, gpu_mib=24_000), 29, "vision", "lin", "notebook"),
        # An array.
        *(
            _item(
                f"sweep-{at}", one, 6 + 3 * at, "vision", "grace", labels={ARRAY_LABEL: "sweep", INDEX_LABEL: str(at)}
            )
            for at in range(6)
        ),
        # A pipeline.
        _item("etl-extract", Request(16_000, 64 << 10), 3, "production", "ci"),
        _item("etl-train", one, 8, "production", "ci", after=("etl-extract",)),
        _item("etl-evaluate", one, 2, "production", "ci", after=("etl-train",)),
        _item("etl-publish", Request(1000, 2 << 10), 2, "production", "ci", after=("etl-evaluate",)),
        # Workloads that wait, each for a reason of its own: see what `kaiwo why` says.
        _item("too-large", Request(64_000, 256 << 10, gpus=16), 30, "production", "ada", "training"),
        _item("wrong-model", Request(8000, 32 << 10, gpus=1, gpu_models=("H100",)), 10, "vision", "lin"),
        _item("over-the-limit", Request(16_000, 64 << 10, gpus=4), 10, "sandbox", "noor"),
        _item("held-for-review", Request(8000, 32 << 10, gpus=2), 15, "language", "omar", held=True),
        _item("big-gang", eight, 20, "production", "ada", "training", pods=6),
        _item("huge-memory", Request(4000, 16 << 10, gpus=1, gpu_mib=250_000), 10, "vision", "grace"),
    ]


def _next_job(rng: random.Random, living: Collection[str]) -> Item:
    number = next(number for number in range(len(living) + 1) if f"{NAMESPACE}/job-{number}" not in living)
    request = rng.choice(
        (
            Request(8000, 32 << 10, gpus=1),
            Request(16_000, 64 << 10, gpus=2),
            Request(32_000, 128 << 10, gpus=4),
            Request(4000, 16 << 10, gpus=1, gpu_milli=500),
            Request(4000, 16 << 10, gpus=1, gpu_mib=32_000),
            Request(16_000, 32 << 10),
        )
    )
    pods = rng.choice((1, 1, 1, 2)) if request.is_whole else 1
    queue = rng.choice(("vision", "language", "production"))
    user = rng.choice(("ada", "grace", "lin", "omar", "sam"))
    return _item(f"job-{number}", request, rng.randrange(2, 41), queue, user, pods=pods)


def _item(
    name: str,
    request: Request,
    minutes: int,
    queue: str,
    user: str,
    kind: str = "batch",
    pods: int = 1,
    minimum: int = -1,
    after: Sequence[str] = (),
    labels: dict[str, str] | None = None,
    **fields: Any,
) -> Item:
    workload = Workload(
        name=f"{NAMESPACE}/{name}",
        roles=(Role(request, count=pods, minimum=minimum),),
        queue=queue,
        user=user,
        kind=kind,
        preemptible=kind != "inference",
        estimate_s=minutes * MINUTE_S,
        after=tuple(f"{NAMESPACE}/{other}" for other in after),
        labels={DEMO_LABEL: "true", **(labels or {})},
        **fields,
    )
    return workload, Program(simulated_s=minutes * MINUTE_S)


async def _existing_queue(cluster: Cluster, queue: Queue) -> Queue | None:
    (existing,) = await cluster.abilities.work.put((replace(queue, parent=""),), (), dry_run=True)
    return existing


def _demo_records(cluster: Cluster) -> list[WorkloadRecord]:
    return [record for record in cluster.records() if record.workload.labels.get(DEMO_LABEL) == "true"]
