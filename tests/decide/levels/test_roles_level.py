"""How far roles may be apart: each role in its own domain, and all of them in one wider domain."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.explain import sentence
from kaiwo.model.events import PodGone, WorkloadChanged
from kaiwo.model.request import Request
from kaiwo.model.workload import Role
from tests.decide.levels.fabrics import LEAF, SPINE, busy, chosen, fabric, gang, leaf_of, leaves_of, nodes_of
from tests.worlds import World


def spine_of(node: str) -> int:
    return int(leaf_of(node)[1:]) // 2


def two_roles(pods: tuple[int, int] = (2, 2), **levels: Any) -> WorkloadChanged:
    roles = tuple(Role(Request(gpus=8), name, count) for name, count in zip(("prefill", "decode"), pods, strict=True))
    return WorkloadChanged(gang("serve", roles, **levels))


def leaves_by_role(world: World) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pod, node in nodes_of(world, "serve").items():
        found.setdefault(pod.partition("-")[0], set()).add(leaf_of(node))
    return found


def test_each_role_has_a_leaf_and_all_have_one_spine() -> None:
    world = busy(fabric(2, 2, 2, 2), "l0-n0")
    plan = world.tell(two_roles(required_level=LEAF, roles_level=SPINE)).decide()
    assert all(len(leaves) == 1 for leaves in leaves_by_role(world).values())
    assert {spine_of(node) for node in nodes_of(world, "serve").values()} == {1}
    assert chosen(plan, "serve")[0] == SPINE
    assert {chosen(plan, "serve", role)[0] for role in ("prefill", "decode")} == {LEAF}


def test_roles_that_cannot_be_so_near_wait_and_the_answer_names_the_level() -> None:
    """A leaf of each spine has room for one role: without the level between them, the roles would start."""
    world = busy(busy(fabric(2, 2, 2, 2), "l0-n0"), "l2-n0")
    world.tell(two_roles(required_level=LEAF, roles_level=SPINE))
    assert world.decide().starts == ()
    told = [sentence(each) for each in world.obstacles("serve")]
    assert any("must run in one" in text for text in told), told
    world.tell(two_roles(required_level=LEAF, roles_level=""))
    assert world.decide().starts == ()  # all four pods in one leaf: that is what the level means without the other
    world.finish("busy-l0-n0").tell(two_roles(required_level=LEAF, roles_level=SPINE)).settle()
    assert leaves_of(world, "serve") == {"l0", "l1"}


def test_a_preferred_level_holds_for_each_role_if_it_can() -> None:
    world = fabric(2, 1, 2, 2).tell(two_roles(preferred_level=LEAF, roles_level=SPINE))
    world.decide()
    assert {spine_of(node) for node in nodes_of(world, "serve").values()} == {1}
    assert all(len(leaves) == 1 for leaves in leaves_by_role(world).values())


def test_segments_are_those_of_each_role() -> None:
    world = fabric(2, 2, 2, 2).tell(two_roles((4, 0), segment_size=2, segment_level=LEAF, roles_level=SPINE))
    world.decide()
    nodes = nodes_of(world, "serve")
    assert leaf_of(nodes["prefill-0"]) == leaf_of(nodes["prefill-1"])
    assert leaf_of(nodes["prefill-2"]) == leaf_of(nodes["prefill-3"])
    assert len({spine_of(node) for node in nodes.values()}) == 1


def test_a_lost_pod_returns_to_the_leaf_of_its_role() -> None:
    world = fabric(3, 3, 3, 3).tell(two_roles(required_level=LEAF, roles_level=SPINE))
    world.settle()
    before = leaves_by_role(world)
    world.tell(PodGone("default/serve", "decode-1")).settle()
    assert leaves_by_role(world) == before


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 3), min_size=2, max_size=4),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.lists(st.integers(0, 8), max_size=4),
)
def test_no_role_leaves_its_leaf_and_none_the_spine(leaves: list[int], pods: tuple[int, int], used: list[int]) -> None:
    world = fabric(*leaves)
    names = [f"l{leaf}-n{node}" for leaf, count in enumerate(leaves) for node in range(count)]
    taken = {names[number % len(names)] for number in used}
    for name in sorted(taken):
        busy(world, name, 8)
    world.tell(two_roles(pods, required_level=LEAF, roles_level=SPINE)).settle()
    free = [sum(f"l{leaf}-n{node}" not in taken for node in range(count)) for leaf, count in enumerate(leaves)]
    by_spine = [free[at : at + 2] for at in range(0, len(free), 2)]
    one, other = pods
    fits = any(
        any(room >= one + other for room in spine)
        or any(a >= one and b >= other for at, a in enumerate(spine) for to, b in enumerate(spine) if at != to)
        for spine in by_spine
    )
    placed = nodes_of(world, "serve")
    assert bool(placed) == fits
    if placed:
        assert all(len(leaves) == 1 for leaves in leaves_by_role(world).values())
        assert len({spine_of(node) for node in placed.values()}) == 1
