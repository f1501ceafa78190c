"""A law of bandwidth: what running work has asked for never exceeds what a port or a link carries."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.model.events import Event, PodGone, TopologyChanged, WorkloadChanged
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.model.policy import Policy
from kaiwo.model.workload import ACTIVE_PHASES
from kaiwo.snapshot.cluster_state import ClusterState
from tests.properties.level_worlds import leveled_states
from tests.properties.test_level_laws import policies, world_of

DATA = 970  # of a link of 1,000 MB/s


@st.composite
def rated_states(draw: st.DrawFn) -> tuple[list[Event], int, int]:
    """The events, and the links up from each leaf and each spine."""
    leaf, spine = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    levels = (TopologyLevel("spine", "net/spine", 1_000, spine), TopologyLevel("leaf", "net/leaf", 1_000, leaf))
    topology = Topology("fabric", levels, node_port_mb_s=1_000, node_ports=1)
    events: list[Event] = []
    for event in draw(leveled_states()):
        if isinstance(event, TopologyChanged):
            events.append(TopologyChanged(topology))
        elif isinstance(event, WorkloadChanged):
            need = draw(st.sampled_from([0, 100, 300, 485, 970]))
            events.append(WorkloadChanged(replace(event.workload, bandwidth_mb_s=need)))
        else:
            events.append(event)
    return events, leaf, spine


@given(rated_states(), policies, st.randoms(use_true_random=False))
def test_no_link_ever_carries_more_than_it_can(
    state: tuple[list[Event], int, int], policy: Policy, chance: random.Random
) -> None:
    """Starts, growth, reclaim, preemption, consolidation, planned starts, and the replacement of lost pods."""
    events, leaf, spine = state
    world = world_of(events, policy)
    for _ in range(5):
        world.decide()
        world.let_go()
        assert overloaded(world.state, leaf, spine) == []
        pods = sorted((name, pod) for name, all_ in world.state.pods.items() for pod in all_)
        if pods:
            world.tell(PodGone(*chance.choice(pods)))
        world.now_s += 61


def overloaded(state: ClusterState, leaf: int, spine: int) -> list[str]:
    """Ports and domains on which more was asked for than they carry, from labels and pods alone."""
    asked: Counter[tuple[str, str]] = Counter()
    for name, pods in state.pods.items():
        need = state.workloads[name].bandwidth_mb_s
        nodes = [pod.node for pod in pods.values() if pod.phase in ACTIVE_PHASES]
        for level in ("node", "leaf", "spine"):
            places = [place(state, node, level) for node in nodes]
            if len({each for each in places if each}) > 1:
                asked.update({(level, each): need * places.count(each) for each in set(places) if each})
    most = {"node": DATA, "leaf": DATA * leaf, "spine": DATA * spine}
    return [f"{level} {name}: {mb_s}" for (level, name), mb_s in sorted(asked.items()) if mb_s > most[level]]


def place(state: ClusterState, node: str, level: str) -> str:
    """The path of a domain: leaves of the same name under two spines are two leaves."""
    labels = state.node_objects[node].labels
    if level == "node":
        return node
    above = labels.get("net/spine", "")
    return above if level == "spine" else f"{above}/{labels['net/leaf']}" if "net/leaf" in labels else ""
