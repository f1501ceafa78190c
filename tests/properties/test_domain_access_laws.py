"""A law of access: nothing is ever placed, nominated or planned in a domain that is closed to it."""

import random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.model.events import Event, PodGone, TopologyChanged
from kaiwo.model.network.topology import DomainAccess
from kaiwo.model.plan import Plan
from kaiwo.model.policy import Policy
from kaiwo.snapshot.cluster_state import ClusterState
from tests.properties.level_worlds import FABRIC, leveled_states
from tests.properties.test_level_laws import policies, world_of

rules = st.lists(
    st.builds(
        DomainAccess,
        st.lists(st.sampled_from(["s0", "s1", "l0", "l1", "l2", "l3"]), min_size=1, unique=True).map(tuple),
        st.lists(st.sampled_from(["rich", "poor"]), unique=True).map(tuple),
        st.sampled_from([(), (), ("default",), ("other",)]),
    ),
    max_size=3,
).map(tuple)


@given(leveled_states(), policies, st.lists(rules, min_size=3, max_size=3), st.randoms(use_true_random=False))
def test_nobody_is_ever_placed_in_a_closed_domain(
    events: list[Event], policy: Policy, in_turn: list[tuple[DomainAccess, ...]], chance: random.Random
) -> None:
    """Starts, growth, replacements, reclaim, preemption, consolidation and planned starts, while the rules change."""
    world = world_of(events, policy)
    for access in in_turn:
        world.tell(TopologyChanged(replace(FABRIC, access=access)))
        for _ in range(2):
            plan = world.decide()
            assert places_that_are_closed(world.state, plan, access) == []
            world.let_go()
            pods = sorted((name, pod) for name, all_ in world.state.pods.items() for pod in all_)
            if pods:
                world.tell(PodGone(*chance.choice(pods)))
            world.now_s += 61


def places_that_are_closed(state: ClusterState, plan: Plan, access: tuple[DomainAccess, ...]) -> list[str]:
    """From labels and rules alone."""
    placed = [(each.workload, each.node) for each in (*plan.starts, *plan.nominations)]
    placed += [(planned.workload, place.node) for planned in plan.promises for place in planned.places]
    return [f"{name} on {node}" for name, node in placed if is_closed(state, name, node, access)]


def is_closed(state: ClusterState, name: str, node: str, access: tuple[DomainAccess, ...]) -> bool:
    labels, workload = state.node_objects[node].labels, state.workloads[name]
    for domain in (labels.get("net/spine"), labels.get("net/leaf")):
        about = [rule for rule in access if domain in rule.domains]
        if about and not any(workload.queue in rule.queues or "default" in rule.namespaces for rule in about):
            return True
    return False
