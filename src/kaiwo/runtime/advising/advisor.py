"""Ask the worker for advice and for capacity plans. Nothing of it reaches the cluster.

Advice is kept for a while: it is about the cluster's state, and a page may look at it often.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.advise.advice import AdviceAnswer
from kaiwo.advise.capacity_plan import CapacityAnswer, CapacityChoice
from kaiwo.clusters.local.cluster_file import virtual_nodes
from kaiwo.forecast.recent_arrivals import SavedArrivals
from kaiwo.forecast.run_time_forecast import SavedForecast
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.node import Node, NodeFailure
from kaiwo.runtime.advising.adjuster import Adjuster
from kaiwo.runtime.advising.advising_jobs import AdvisingAnswer, AdvisingJob
from kaiwo.runtime.loop.learned_state import pack_state
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.loop.worker_question import WorkerQuestion, ask_worker
from kaiwo.snapshot.cluster_state import ClusterState

WORKER = WorkerQuestion("kaiwo.runtime.advising.worker_main", "looking for advice", 120.0)
FRESH_S = 30.0
PATIENCE_S = 10.0  # how long a question waits for its answer
KEPT_PLANS = 8  # that nobody has fetched
MAX_ADDED, MAX_CHOICES = 1_000, 12
HOST = "kubernetes.io/hostname"


class NodesToTry(NamedTuple):
    nodes: int
    model: str = ""  # empty: the model of most nodes


class AdviceNow(NamedTuple):
    as_of_s: int
    answer: AdviceAnswer | None  # None: it is still being looked for


class Advisor:
    """Answers come within a moment, or not yet: who asks again gets them."""

    def __init__(self, live: LiveLoop, adjuster: Adjuster) -> None:
        self._live, self._adjuster = live, adjuster
        self._advice_lock, self._plan_lock = asyncio.Lock(), asyncio.Lock()  # one worker of each at a time
        self._last: AdviceNow | None = None
        self._found_at, self._revision = 0.0, -1
        self._looking: asyncio.Task[None] | None = None
        self._plans: OrderedDict[tuple[tuple[NodesToTry, ...], int], asyncio.Task[CapacityAnswer]] = OrderedDict()

    async def advice(self) -> AdviceNow:
        self._raise_failure()  # of a search that ended while nobody waited for it
        is_fresh = time.monotonic() - self._found_at < FRESH_S or self._revision == self._live.revision
        is_looking = self._looking is not None and not self._looking.done()
        if not is_looking and (self._last is None or not is_fresh):
            self._looking = asyncio.create_task(self._look())
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=PATIENCE_S)
            self._raise_failure()
        return self._last or AdviceNow(0, None)

    def _raise_failure(self) -> None:
        """Once: the next question begins another search."""
        looking = self._looking
        if looking is not None and looking.done() and (error := looking.exception()) is not None:
            self._looking = None
            raise error

    async def _look(self) -> None:
        async with self._advice_lock:
            self._revision = self._live.revision
            now_s = self._live.cluster.now_s()
            answer = await self._ask(None, 0)
            self._last, self._found_at = AdviceNow(now_s, answer.advice), time.monotonic()

    async def capacity(self, tried: Sequence[NodesToTry], growth_percent: int) -> CapacityAnswer | None:
        """None: it is still being computed."""
        if len(tried) > MAX_CHOICES or any(not 1 <= each.nodes <= MAX_ADDED for each in tried):
            raise ConfigError(f"ask about at most {MAX_CHOICES} choices of 1 to {MAX_ADDED:,} nodes each", "nodes")
        question = (tuple(tried), growth_percent)
        plan = self._plans.get(question)
        if plan is None:
            choices = await self._live.ask(lambda state: tuple(_choice(state, each) for each in tried))
            plan = self._plans[question] = asyncio.create_task(self._plan(choices, growth_percent))
            while len(self._plans) > KEPT_PLANS:
                self._plans.popitem(last=False)[1].cancel()
        await asyncio.wait([plan], timeout=PATIENCE_S)
        if not plan.done():
            return None
        self._plans.pop(question, None)
        return plan.result()

    async def _plan(self, choices: tuple[CapacityChoice, ...], growth_percent: int) -> CapacityAnswer:
        async with self._plan_lock:
            return (await self._ask(choices, growth_percent)).capacity or CapacityAnswer()

    async def close(self) -> None:
        tasks = [task for task in (self._looking, *self._plans.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, choices: tuple[CapacityChoice, ...] | None, growth_percent: int) -> AdvisingAnswer:
        live, now_s, uses = self._live, self._live.cluster.now_s(), self._adjuster.uses.save()

        def job_of(state: ClusterState) -> bytes:
            saved, arrivals = SavedForecast(), SavedArrivals()
            if live.run_times is not None:
                saved, arrivals = live.run_times.forecast.save(), live.run_times.arrivals.save()
            learned = pack_state(state, live.policy, now_s)
            job = AdvisingJob(
                state.events(), learned, saved, arrivals, uses, now_s, live.policy, choices, growth_percent
            )
            return msgspec.msgpack.encode(job)

        return msgspec.msgpack.decode(await ask_worker(WORKER, await live.ask(job_of)), type=AdvisingAnswer)


def _choice(state: ClusterState, tried: NodesToTry) -> CapacityChoice:
    """Nodes like those that the cluster has most of; of a model that it does not have, nodes of eight GPUs."""
    model = tried.model
    template = _template(state, model)
    if template is None and model not in GPU_MODELS:
        known = ", ".join(sorted({gpu.model for node in state.node_objects.values() for gpu in node.gpus}))
        raise ConfigError(f"the GPU model '{model[:40]}' is not known; the cluster has {known or 'none'}", "model")
    nodes = [_like(template, n) for n in range(tried.nodes)] if template else virtual_nodes(tried.nodes, model)
    name = template.gpus[0].model if template else model
    return CapacityChoice(name, tuple(replace(each, name=f"added-{each.name}") for each in nodes))


def _template(state: ClusterState, model: str) -> Node | None:
    """The node of this model with the most common number of GPUs; the first by name."""
    nodes = [node for node in sorted(state.node_objects.values(), key=lambda each: each.name) if node.gpus]
    if not model and nodes:
        ((model, _),) = Counter(gpu.model for node in nodes for gpu in node.gpus).most_common(1)
    alike = [node for node in nodes if node.gpus[0].model == model and not node.gpus[0].parent]
    if not alike:
        return None
    ((size, _),) = Counter(len(node.gpus) for node in alike).most_common(1)
    return next(node for node in alike if len(node.gpus) == size)


def _like(template: Node, number: int) -> Node:
    """An empty node that works. Its place in the network is not known."""
    name = f"{template.name}-{number}"
    labels = {**template.labels, HOST: name} if HOST in template.labels else template.labels
    gpus = tuple(replace(gpu, healthy=True, reason="", next_mode="", is_changing=False, failed_s=0)
                 for gpu in template.gpus)  # fmt: skip
    return replace(
        template, name=name, labels=labels, gpus=gpus, ready=True, cordoned=False, reason="", failure=NodeFailure()
    )
