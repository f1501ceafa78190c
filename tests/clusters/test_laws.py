"""Laws of the shared rules, on random histories: the events tell the truth, and nothing is ever given out twice."""

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kaiwo.clusters.embedded import transitions
from kaiwo.clusters.embedded.lifecycle import Exit
from kaiwo.clusters.embedded.state import EmbeddedState
from kaiwo.clusters.ledger import NodeUsage, holds
from kaiwo.clusters.recent_changes import RecentChanges
from kaiwo.clusters.simulated import SimulatedCluster
from kaiwo.model.errors import KaiwoError
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.plan import Eviction, EvictionCause, Plan, Start
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase
from kaiwo.model.workload_record import Program, WorkloadRecord, WorkloadState
from tests.clusters.kinds import WHOLE_MIB, some_nodes, work
from tests.clusters.told_state import ToldState
from tests.waiting import run

NAMES = ("a", "b", "c", "d")
names = st.sampled_from(NAMES)
full_names = names.map(lambda name: f"default/{name}")
nodes = st.sampled_from(("node-1", "node-2"))
requests = st.sampled_from(
    (Request(gpus=1), Request(gpus=1, gpu_milli=500), Request(gpus=1, gpu_mib=100_000), Request(cpu_milli=100_000))
)
shares = st.builds(
    Share,
    st.sampled_from(("gpu-0", "gpu-1")),
    st.sampled_from((0, 500, 1000)),
    st.sampled_from((0, 100_000, WHOLE_MIB)),
)
starts = st.builds(
    Start, full_names, st.sampled_from(("main-0", "main-1")), nodes, st.lists(shares, max_size=1).map(tuple)
)
evictions = st.builds(Eviction, full_names, st.sampled_from(("main-0", "main-1")), st.just(EvictionCause.PREEMPT))
steps = st.one_of(
    st.tuples(
        st.just("submit"),
        names,
        requests,
        st.integers(1, 2),
        st.sampled_from((-1, 1)),
        st.lists(names, max_size=1).map(tuple),
        st.sampled_from((0, 5)),
    ),
    st.tuples(st.just("apply"), st.lists(starts, max_size=4), st.lists(evictions, max_size=1)),
    st.tuples(st.just("advance"), st.integers(0, 30)),
    st.tuples(st.sampled_from(("cancel", "hold", "release", "requeue", "fail")), full_names),
    st.tuples(st.sampled_from(("drain", "uncordon", "remove-node", "put-node")), nodes),
)


async def take(cluster: SimulatedCluster, step: tuple[Any, ...]) -> None:
    match step:
        case "submit", name, request, pods, minimum, after, limit_s:
            program = Program(simulated_s=10, retries=1)
            workload = work(name, pods, minimum, request, after=after, time_limit_s=limit_s)
            await cluster.work.submit([(workload, program)])
        case "apply", coming, leaving:
            await cluster.apply(Plan(starts=tuple(coming), evictions=tuple(leaving)))
        case "advance", seconds:
            cluster.advance(seconds)
        case "fail", name:
            placement = cluster.state.pods.get((name, "main-0"))
            if placement is not None:
                end, run_id = Exit(code=1), placement.run.id
                await cluster.transact(lambda transaction: transitions.run_ended(transaction, run_id, end))
        case "drain", node:
            await cluster.nodes.drain(node)
        case "uncordon", node:
            await cluster.nodes.cordon(node, False)
        case "remove-node", node:
            await cluster.nodes.remove(node)
        case "put-node", node:
            await cluster.nodes.put(some_nodes(2, gpus=2)[int(node[-1]) - 1])
        case verb, name:
            await cluster.work.change(verb, name)


def check(cluster: SimulatedCluster) -> None:
    """What must hold after every step."""
    world = cluster.state
    truth = ToldState()
    truth.patch(world.as_events())
    assert truth.overcommitted() == []
    for name, life in world.workloads.items():
        phases = [placement.pod.phase for placement in world.pods_of.get(name, {}).values()]
        up = sum(phase is not Phase.DONE for phase in phases)
        state = life.record.state
        assert (state in (WorkloadState.STARTING, WorkloadState.RUNNING, WorkloadState.STOPPING)) == bool(up), (
            name,
            state,
            phases,
        )
        if life.is_over:
            assert not phases
        if up:
            assert len(phases) >= sum(role.needed for role in life.workload.roles), "a gang runs halfway"
        for other in life.workload.after if not life.is_over else ():
            assert not world.workloads[other].is_over, "it waits for what has ended"
    uses: dict[str, NodeUsage] = {}
    for placement in world.pods.values():
        if holds(placement.pod):
            uses.setdefault(placement.pod.node, NodeUsage()).add(placement.pod)
    for node, use in uses.items():
        kept = world.ledger.usage_of(node)
        assert (kept.cpu_milli, kept.memory_mib, kept.pods) == (use.cpu_milli, use.memory_mib, use.pods)
        assert {gpu: held for gpu, held in kept.devices.items() if held != (0, 0)} == use.devices
    assert world.living_count.get("default", 0) == sum(not life.is_over for life in world.workloads.values())


async def live(history: list[tuple[Any, ...]]) -> tuple[list[Any], list[Any]]:
    cluster = SimulatedCluster(some_nodes(2, gpus=2))
    told: list[Any] = []
    state = ToldState()
    cluster._publish = lambda transaction: told.extend(transaction.events)  # type: ignore[method-assign, assignment]
    state.patch(cluster.state.as_events())
    seen, known = -1, dict[str, WorkloadRecord]()
    for step in history:
        before = len(told)
        try:
            await take(cluster, step)
        except KaiwoError:
            assert len(told) == before, "a refused wish must leave no trace"
        state.patch(told[before:])
        check(cluster)
        truth = ToldState()
        truth.patch(cluster.state.as_events())
        assert state == truth
        seen = hear(cluster, seen, known)
    return told, list(cluster.records())


def hear(cluster: SimulatedCluster, seen: int, known: dict[str, WorkloadRecord]) -> int:
    """The news bring what somebody knew up to date."""
    news = cluster.records_since(seen)
    assert news.is_all == (seen < 0)
    for name in news.gone:
        known.pop(name, None)
    known.update((record.workload.name, record) for record in news.records)
    assert known == cluster.state.records
    return news.version


@given(st.lists(steps, max_size=30))
def test_whatever_happens_the_events_tell_the_truth_and_nothing_is_given_twice(history: list[tuple[Any, ...]]) -> None:
    run(live(history))


@given(st.lists(steps, max_size=15))
def test_the_same_history_gives_the_same_events(history: list[tuple[Any, ...]]) -> None:
    assert run(live(history)) == run(live(history))


@given(st.lists(steps, max_size=20), steps)
def test_a_change_that_cannot_be_kept_leaves_no_trace(history: list[tuple[Any, ...]], last: tuple[Any, ...]) -> None:
    async def test() -> None:
        cluster = SimulatedCluster(some_nodes(2, gpus=2))
        for step in history:
            try:
                await take(cluster, step)
            except KaiwoError:
                continue
        before = everything(cluster.state)

        def fail(transaction: object) -> None:
            raise OSError("the disk is full")

        cluster._forget_old = fail  # type: ignore[method-assign]
        with contextlib.suppress(OSError, KaiwoError):
            await take(cluster, last)
        if last[0] != "advance":  # the simulated clock moves on in any case
            assert everything(cluster.state) == before

    run(test())


def everything(world: EmbeddedState) -> dict[str, Any]:
    """All state and all indexes, as a copy."""
    state: dict[str, Any] = {"version": world.version}
    for key, value in vars(world).items():
        if isinstance(value, dict):
            state[key] = {name: dict(at) if isinstance(at, dict) else at for name, at in value.items() if at != 0}
    state["uses"] = {node: vars_of(world.ledger.usage_of(node)) for node in ("node-1", "node-2")}
    return state


def vars_of(use: NodeUsage) -> tuple[Any, ...]:
    held = {gpu: amounts for gpu, amounts in use.devices.items() if amounts != (0, 0)}
    return use.cpu_milli, use.memory_mib, use.pods, held


@given(st.text("abcdefgh", max_size=40), st.integers(1, 5), st.integers(0, 20))
def test_news_are_told_once_the_latest_first_and_those_that_are_too_old_are_told_whole(
    changes: str, kept: int, begun_at: int
) -> None:
    recent = RecentChanges(kept)
    recent.begin_at(begun_at)
    for version, name in enumerate(changes, start=begun_at + 1):
        recent.note(name, version)
    for ago in range(len(changes) + 1):
        latest_first = list(dict.fromkeys(reversed(changes[len(changes) - ago :])))
        told = recent.since(begun_at + len(changes) - ago)
        assert told == latest_first or (told is None and len(set(changes)) > kept)
        assert told is not None or len(latest_first) >= kept, "what changed so recently is known"
    if begun_at:
        assert recent.since(begun_at - 1) is None


def test_of_many_news_only_so_many_are_kept() -> None:
    recent = RecentChanges(kept=3)
    for version in range(1, 1001):
        recent.note(f"w{version}", version)
    assert recent.since(990) is None
    assert recent.since(997) == ["w1000", "w999", "w998"]
    assert recent.since(1000) == []


def test_a_reader_gets_thousands_of_news_as_well_as_a_few() -> None:
    recent = RecentChanges()
    for version in range(1, 3001):
        recent.note(f"w{version}", version)
    for count in (0, 1, 255, 256, 257, 511, 512, 513, 3000):
        assert recent.since(3000 - count) == [f"w{version}" for version in range(3000, 3000 - count, -1)]


def test_queues_of_the_simulation_can_be_given_at_once() -> None:
    cluster = SimulatedCluster(queues=[Queue("lab"), Queue("vision", parent="lab")])
    assert set(cluster.state.children["lab"]) == {"vision"}
