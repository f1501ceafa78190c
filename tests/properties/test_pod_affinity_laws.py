"""Laws of pod affinity, checked from nodes and pods alone, never from the counts that decide looks at."""

from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.model.affinity import NODE_LEVEL, PodAffinity, RequiredPodAffinity, RequiredPodAntiAffinity, TopologySpread
from kaiwo.model.events import NodeChanged
from kaiwo.model.plan import Plan, encode_plan
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, role_of
from kaiwo.snapshot.cluster_state import ClusterState
from tests.feasible_nodes import feasible_nodes
from tests.worlds import World, audit

MARKS = ("m", "n", "o")
LEVELS = ("zone", "rack", NODE_LEVEL)

marks = st.lists(st.sampled_from(MARKS), max_size=2, unique=True).map(tuple)
aparts = st.lists(st.builds(RequiredPodAntiAffinity, st.sampled_from(MARKS), st.sampled_from(LEVELS)), max_size=2).map(
    tuple
)
nears = st.none() | st.builds(
    RequiredPodAffinity,
    st.sampled_from(MARKS),
    st.lists(st.sampled_from(LEVELS), min_size=1, max_size=2, unique=True).map(tuple),
)
spreads = st.lists(
    st.builds(
        TopologySpread, st.sampled_from(MARKS), st.sampled_from(LEVELS), st.integers(1, 2), st.integers(1, 4),
        by_taints=st.just(False),
    ),
    max_size=2,
).map(tuple)  # fmt: skip
neighbours = st.builds(PodAffinity, marks, nears, aparts, spreads)


class Work(NamedTuple):
    """One workload to come."""

    neighbours: PodAffinity
    pods: int
    minimum: int
    gpus: int
    priority: int


works = st.builds(
    Work, neighbours, st.integers(1, 4), st.sampled_from((-1, 1)), st.integers(0, 2), st.sampled_from((1, 1, 1, 5))
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = World(nodes=0)
    for number in range(draw(st.integers(1, 5))):
        labels = {level: draw(st.sampled_from("ab")) for level in LEVELS[:2] if draw(st.integers(0, 5))}
        world.node(f"node-{number}", gpus=draw(st.integers(1, 4)), labels=labels)
    return world


@given(worlds(), st.lists(works, min_size=1, max_size=6))
def test_nobody_is_placed_against_a_rule(world: World, come: list[Work]) -> None:
    for number, work in enumerate(come):
        request = Request(gpus=work.gpus, neighbours=work.neighbours)
        world.submit(f"w{number}", work.pods, minimum=work.minimum, request=request, priority=work.priority)
        for _ in range(3):
            before = _pods(world.state)
            plan = world.decide()
            _check(world.state, before, plan)
            world.let_go()
    assert audit(world.state) == []
    assert _counts_are_true(world.state)


@given(worlds(), st.lists(works, min_size=1, max_size=5), neighbours)
def test_the_feasible_nodes_are_those_that_the_rules_leave(world: World, come: list[Work], own: PodAffinity) -> None:
    for number, work in enumerate(come):
        world.submit(f"w{number}", work.pods, request=Request(neighbours=work.neighbours), minimum=1)
    world.settle()
    there = _pods(world.state)
    plain = {name: node.labels for name, node in world.state.node_objects.items()}
    obey = {name for name in plain if _may_come(plain, there, own, name)}
    assert set(feasible_nodes(world.snapshot(), Request(neighbours=own))) == obey


@given(worlds(), st.lists(works, min_size=1, max_size=5))
def test_equal_snapshots_give_equal_plans_and_looking_leaves_no_trace(world: World, come: list[Work]) -> None:
    for number, work in enumerate(come):
        world.submit(f"w{number}", work.pods, request=Request(gpus=work.gpus, neighbours=work.neighbours))
    again = ClusterState(world.plugins.ordering(world.policy))
    again.patch(reversed(world.state.events()))
    first = encode_plan(decide(world.snapshot()))
    assert first == encode_plan(decide(world.snapshot())) == encode_plan(decide(again.snapshot(world.now_s)))
    assert _counts_are_true(world.state)


@given(worlds(), st.lists(works, min_size=1, max_size=4))
def test_whoever_could_be_placed_does_not_wait(world: World, come: list[Work]) -> None:
    """A single pod that waits while no node is feasible for it; and nothing that starts later makes it forget."""
    for number, work in enumerate(come):
        world.submit(f"w{number}", request=Request(gpus=work.gpus, neighbours=work.neighbours))
    world.settle()
    for name, workload in world.state.workloads.items():
        if name not in world.state.pods:
            assert feasible_nodes(world.snapshot(), workload.roles[0].request) == (), name


@given(worlds(), st.lists(works, min_size=2, max_size=6))
def test_nobody_is_stopped_for_nothing(world: World, come: list[Work]) -> None:
    """Whoever room was made for has started once those who were stopped are gone."""
    for number, work in enumerate(come):
        request = Request(gpus=work.gpus, neighbours=work.neighbours)
        world.submit(f"w{number}", work.pods, minimum=work.minimum, request=request, priority=work.priority)
        for _ in range(4):
            served = {each.beneficiary for each in world.decide().evictions}
            if not served:
                break
            world.let_go().decide()
            assert served <= set(world.state.pods), f"{served} did not start"


def _pods(state: ClusterState) -> list[Pod]:
    return [pod for pods in state.pods.values() for pod in pods.values()]


def _check(state: ClusterState, before: list[Pod], plan: Plan) -> None:
    labels = {name: node.labels for name, node in state.node_objects.items()}
    new = [
        (start.node, role_of(state.workloads[start.workload], start.pod).request.neighbours) for start in plan.starts
    ]
    every = [(pod.node, pod.neighbours) for pod in before] + new
    for at, (node, own) in enumerate(every[len(before) :], len(before)):
        assert own is not None
        others = every[:at] + every[at + 1 :]
        assert _is_apart(labels, others, own, node), f"{node}: {own} beside {others}"
        assert _is_even(labels, others, own, node), f"{node}: {own} beside {others}"
        assert _is_near(labels, others, own, node) or _is_first(labels, every[: len(before)], own), f"{node}: {own}"


def _may_come(labels: dict[str, dict[str, str]], there: Iterable[Pod], own: PodAffinity, node: str) -> bool:
    others = [(pod.node, pod.neighbours) for pod in there]
    has_levels = own.near is None or all(_place(labels, node, level) for level in own.near.levels)
    is_near = _is_near(labels, others, own, node) or (has_levels and _is_first(labels, others, own))
    return _is_apart(labels, others, own, node) and is_near and _is_even(labels, others, own, node)


Others = list[tuple[str, PodAffinity | None]]
Labels = dict[str, dict[str, str]]


def _place(labels: Labels, node: str, level: str) -> str | None:
    return node if level == NODE_LEVEL else labels[node].get(level)


def _share(labels: Labels, one: str, other: str, level: str) -> bool:
    place = _place(labels, one, level)
    return place is not None and place == _place(labels, other, level)


def _is_apart(labels: Labels, others: Others, own: PodAffinity, node: str) -> bool:
    for where, other in others:
        assert other is not None
        if any(rule.mark in other.marks and _share(labels, node, where, rule.level) for rule in own.apart):
            return False
        if any(rule.mark in own.marks and _share(labels, node, where, rule.level) for rule in other.apart):
            return False
    return True


def _is_near(labels: Labels, others: Others, own: PodAffinity, node: str) -> bool:
    if own.near is None:
        return True
    mark = own.near.mark
    return all(
        any(mark in other.marks and _share(labels, node, where, level) for where, other in others if other is not None)
        for level in own.near.levels
    )


def _is_first(labels: Labels, others: Others, own: PodAffinity) -> bool:
    near = own.near
    if near is None or near.mark not in own.marks:
        return False
    return not any(
        other is not None and near.mark in other.marks and any(_place(labels, where, level) for level in near.levels)
        for where, other in others
    )


def _is_even(labels: Labels, others: Others, own: PodAffinity, node: str) -> bool:
    levels = [rule.level for rule in own.spread]
    counted = [name for name in labels if all(_place(labels, name, level) is not None for level in levels)]
    for rule in own.spread:
        here = _place(labels, node, rule.level)
        if here is None:
            return False
        counts: dict[str | None, int] = {_place(labels, name, rule.level): 0 for name in counted}
        for where, other in others:
            if other is not None and rule.mark in other.marks and where in counted:
                counts[_place(labels, where, rule.level)] += 1
        fewest = min(counts.values(), default=0) if len(counts) >= rule.min_places else 0
        if counts.get(here, 0) + (rule.mark in own.marks) - fewest > rule.max_skew:
            return False
    return True


def _counts_are_true(state: ClusterState) -> bool:
    """What is counted follows from what is there."""
    again = ClusterState()
    again.patch(state.events())
    return (again.affinity_counts.by_node, again.affinity_counts.levels) == (
        state.affinity_counts.by_node,
        state.affinity_counts.levels,
    )


def test_a_node_that_changes_its_labels_is_counted_anew() -> None:
    world = World(nodes=2).submit("w", request=Request(neighbours=PodAffinity(("m",))))
    world.settle()
    for name, node in list(world.state.node_objects.items()):
        world.tell(NodeChanged(replace(node, labels={"zone": name})))
    (home,) = world.nodes_of("w")
    near = Request(neighbours=PodAffinity(near=RequiredPodAffinity("m", ("zone",))))
    assert feasible_nodes(world.snapshot(), near) == (home,)
