"""Random small worlds with a network: some nodes outside every domain, work with levels, queues that reclaim."""

from collections.abc import Iterator

from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.model.events import Event, NodeChanged, QueueChanged, TopologyChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.network.constraint import STRATEGIES, TopologyConstraint
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.model.node import Node
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.workload import ACTIVE_PHASES, Role, SubGroup, Workload, role_name
from kaiwo.snapshot.cluster_state import ClusterState

LEVELS = ("spine", "leaf")
FABRIC = Topology("fabric", tuple(TopologyLevel(name, f"net/{name}") for name in LEVELS))


@st.composite
def node_events(draw: st.DrawFn) -> list[Event]:
    found: list[Event] = []
    for at in range(draw(st.integers(2, 7))):
        leaf = draw(st.integers(0, 3))
        labels = {"net/spine": f"s{leaf // 2}", "net/leaf": f"l{leaf}"}
        if draw(st.integers(0, 7)) == 0:
            labels = draw(st.sampled_from([{}, {"net/spine": "s0"}]))
        gpus = tuple(Gpu(f"gpu-{number}", "MI300X", 196_608) for number in range(draw(st.sampled_from([1, 2, 4]))))
        found.append(NodeChanged(Node(f"n{at}", 64_000, 262_144, 110, gpus, labels=labels)))
    return found


levels = st.sampled_from(["", "", *LEVELS, "net/leaf"])
constraints = st.one_of(
    st.none(),
    st.builds(TopologyConstraint, required=levels, preferred=levels, strategy=st.sampled_from(["", *STRATEGIES])),
)


@st.composite
def leveled_workloads(draw: st.DrawFn, name: str) -> Workload:
    sides = draw(st.sampled_from([(), (), ("left", "right")]))
    roles = []
    for side in sides or ("",):
        for at in range(draw(st.sampled_from([1, 1, 2]))):
            count = draw(st.sampled_from([1, 2, 2, 3, 5]))
            request = Request(gpus=draw(st.sampled_from([0, 1, 1, 2])), cpu_milli=1_000)
            minimum = draw(st.sampled_from([-1, -1, 1]))
            roles.append(Role(request, f"{side or 'role'}{at}", count, minimum, side, levels=draw(constraints)))
    groups = tuple(SubGroup(side, levels=draw(constraints)) for side in sides)
    segment = draw(st.sampled_from([0, 0, 0, 2]))
    return Workload(
        f"default/{name}",
        tuple(roles),
        queue=draw(st.sampled_from(["rich", "poor"])),
        priority=draw(st.sampled_from([0, 0, 50])),
        submitted_s=draw(st.integers(0, 5)),
        groups=(SubGroup(), *groups) if groups else (),
        required_level=draw(levels),
        preferred_level=draw(levels),
        placement_strategy=draw(st.sampled_from(["", *STRATEGIES])),
        segment_size=segment,
        segment_level="leaf" if segment else "",
        time_limit_s=draw(st.sampled_from([0, 100])),
    )


@st.composite
def leveled_states(draw: st.DrawFn) -> list[Event]:
    quota = QueueAmounts(draw(st.sampled_from([0, 4_000, 8_000])))
    queues = [QueueChanged(replace(Queue("rich"), gpu=quota)), QueueChanged(Queue("poor"))]
    work = [WorkloadChanged(draw(leveled_workloads(f"w{at}"))) for at in range(draw(st.integers(1, 7)))]
    return [TopologyChanged(FABRIC), *queues, *draw(node_events()), *work]


def broken_levels(state: ClusterState) -> list[str]:
    """Every required level that does not hold, from labels and pods alone."""
    found = []
    for name, workload in state.workloads.items():
        pods = [pod for pod in state.pods.get(name, {}).values() if pod.phase in ACTIVE_PHASES]
        for part, level, members in _required(workload, [pod.name for pod in pods]):
            nodes = {pod.node for pod in pods if pod.name in members}
            places = {_place(state, node, level) for node in nodes}
            if len(places) > 1 or None in places:
                found.append(f"{name} {part}: {level} is {sorted(map(str, places))} on {sorted(nodes)}")
    return found


def _required(workload: Workload, pods: list[str]) -> Iterator[tuple[str, str, set[str]]]:
    if workload.required_level:
        yield "", workload.required_level, set(pods)
    inside = {role.name: role.group for role in workload.roles}
    for group in workload.groups:
        if group.levels is not None and group.levels.required:
            yield group.name, group.levels.required, {pod for pod in pods if inside[role_name(pod)] == group.name}
    for role in workload.roles:
        own = [pod for pod in pods if role_name(pod) == role.name]
        if role.levels is not None and role.levels.required:
            yield role.name, role.levels.required, set(own)
        if workload.segment_size:
            for segment in {int(pod.rpartition("-")[2]) // workload.segment_size for pod in own}:
                members = {pod for pod in own if int(pod.rpartition("-")[2]) // workload.segment_size == segment}
                yield f"{role.name} {segment}", workload.segment_level, members


def _place(state: ClusterState, node: str, level: str) -> tuple[str, ...] | None:
    """The path of domains down to a level; None: the node has none."""
    labels = state.node_objects[node].labels
    keys = ["net/spine"] if level == "spine" else ["net/spine", "net/leaf"]
    path = tuple(labels.get(key, "") for key in keys)
    return path if path[-1] else None
