"""Ranks: the pods of a gang are numbered by their places, and a pod that stays keeps its number."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.model.events import PodGone, WorkloadChanged
from kaiwo.model.network.constraint import TopologyConstraint
from kaiwo.model.plan import Plan, encode_plan
from kaiwo.model.request import Request
from kaiwo.model.workload import NO_RANK, Role
from tests.decide.levels.fabrics import LEAF, SPINE, busy, fabric, gang, leaf_of, nodes_of
from tests.worlds import World


def ranks_of(world: World, workload: str) -> dict[str, int]:
    return {name: pod.rank for name, pod in world.state.pods[f"default/{workload}"].items()}


def nodes_by_rank(world: World, workload: str) -> list[str]:
    pods = [pod for pod in world.state.pods[f"default/{workload}"].values() if pod.rank != NO_RANK]
    return [pod.node for pod in sorted(pods, key=lambda pod: pod.rank)]


def hops(nodes: list[str]) -> int:
    """The total distance of neighbours on `l0-n0`, `l0-n1`, ... with two leaves a spine, counted by hand."""
    total = 0
    for one, other in pairwise(nodes):
        leaves = int(leaf_of(one)[1:]), int(leaf_of(other)[1:])
        total += (one != other) + (leaves[0] != leaves[1]) + (leaves[0] // 2 != leaves[1] // 2)
    return total


def without_levels(plan: Plan) -> list[int]:
    return [start.rank for start in plan.starts]


def test_a_gang_with_a_level_has_ranks_in_the_order_of_its_domains() -> None:
    world = fabric(2, 2, 2).submit("train", pods=4, gpus_each=8, required_level=SPINE)
    world.decide()
    assert sorted(ranks_of(world, "train").values()) == [0, 1, 2, 3]
    assert hops(nodes_by_rank(world, "train")) == 1 + 2 + 1


def test_work_that_asks_for_nothing_has_no_ranks_and_the_plan_says_nothing_of_them() -> None:
    plan = fabric(2, 2).submit("plain", pods=4, gpus_each=8).decide()
    assert without_levels(plan) == [NO_RANK] * 4
    assert b"rank" not in encode_plan(plan)


def test_a_single_pod_has_no_rank() -> None:
    assert without_levels(fabric(2).submit("one", gpus_each=8, required_level=LEAF).decide()) == [NO_RANK]


def test_scattered_work_that_asks_for_ranks_gets_those_that_are_nearest() -> None:
    """Two roles share the nodes: by name, each neighbour of the first role is on another leaf."""
    world = fabric(2, 2)
    roles = tuple(
        Role(Request(gpus=4), name, 2, levels=TopologyConstraint(preferred=SPINE, strategy="distributed"))
        for name in ("a", "b")
    )
    world.tell(WorkloadChanged(gang("mix", roles, rank_order=True))).decide()
    assert {leaf_of(node) for node in nodes_of(world, "mix").values()} == {"l0", "l1"}
    by_rank = [leaf_of(node) for node in nodes_by_rank(world, "mix")]
    assert by_rank == sorted(by_rank)
    by_name = [leaf_of(node) for _, node in sorted(nodes_of(world, "mix").items())]
    assert by_name != sorted(by_name)


def test_the_leader_has_rank_0_and_a_launcher_without_gpus_has_none() -> None:
    world = fabric(2, 2)
    roles = (
        Role(Request(cpu_milli=100), "launcher", leads=True),
        Role(Request(gpus=8), "worker", 3),
        Role(Request(gpus=8), "master", 1, leads=True),
    )
    world.tell(WorkloadChanged(gang("job", roles, required_level=SPINE))).decide()
    ranks = ranks_of(world, "job")
    assert ranks["launcher-0"] == NO_RANK
    assert ranks["master-0"] == 0
    assert sorted(ranks.values()) == [NO_RANK, 0, 1, 2, 3]
    assert hops(nodes_by_rank(world, "job")) == 1 + 2 + 1


def test_work_without_gpus_numbers_all_its_pods() -> None:
    world = fabric(2).submit("cpu", pods=3, cpu_milli=60_000, rank_order=True)
    world.decide()
    assert sorted(ranks_of(world, "cpu").values()) == [0, 1, 2]


def test_the_replacement_of_a_lost_pod_takes_its_rank_and_nobody_else_is_numbered_anew() -> None:
    world = fabric(3, 3).submit("train", pods=4, gpus_each=8, required_level=SPINE)
    world.decide()
    before = ranks_of(world, "train")
    lost = next(name for name, rank in before.items() if rank == 2)
    world.tell(PodGone("default/train", lost)).settle()
    assert ranks_of(world, "train") == before


def test_two_replacements_take_the_two_free_ranks_so_that_neighbours_are_near() -> None:
    """Ranks 1 and 2 are lost; 0 stays in the first leaf and 3 in the second."""
    world = fabric(2, 2, leaves_per_spine=2)
    world.submit("train", pods=4, gpus_each=8, required_level=SPINE)
    world.decide()
    before = ranks_of(world, "train")
    gone = [name for name, rank in before.items() if rank in (1, 2)]
    world.tell(*(PodGone("default/train", name) for name in gone)).settle()
    after = ranks_of(world, "train")
    assert {name: rank for name, rank in after.items() if name not in gone} == {
        name: rank for name, rank in before.items() if name not in gone
    }
    by_rank = [leaf_of(node) for node in nodes_by_rank(world, "train")]
    assert by_rank in (["l0", "l0", "l1", "l1"], ["l1", "l1", "l0", "l0"])


def test_elastic_work_that_grows_gets_the_next_ranks() -> None:
    world = busy(fabric(2, 1), "l1-n0")
    world.submit("train", pods=3, gpus_each=8, minimum=2, required_level=SPINE).settle()
    assert sorted(ranks_of(world, "train").values()) == [0, 1]
    before = ranks_of(world, "train")
    world.finish("busy-l1-n0").settle()
    after = ranks_of(world, "train")
    assert sorted(after.values()) == [0, 1, 2]
    assert before.items() <= after.items()


def test_pods_that_started_without_ranks_are_not_joined_by_some_that_have_them() -> None:
    world = fabric(2, 2).submit("train", pods=4, gpus_each=8)
    world.decide()
    asks = replace(world.state.workloads["default/train"], rank_order=True)
    world.tell(WorkloadChanged(asks), PodGone("default/train", "main-3")).settle()
    assert set(ranks_of(world, "train").values()) == {NO_RANK}


def test_a_node_that_no_topology_knows_is_as_far_as_another_spine() -> None:
    world = busy(fabric(1, 1, leaves_per_spine=1).node("loose", gpus=16), "l0-n0", 2)
    world.submit("train", pods=4, gpus_each=6, rank_order=True, preferred_level=SPINE).decide()
    nodes = nodes_by_rank(world, "train")
    changes = sum(one != other for one, other in pairwise(nodes))
    assert changes == len(set(nodes)) - 1


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 3), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from((2, 4, 8))), min_size=1, max_size=3),
    st.lists(st.integers(0, 5), max_size=3),
    st.sampled_from(("", "consolidated", "distributed", "stated")),
)
def test_ranks_are_a_permutation_and_neighbours_as_near_as_any_order_allows(
    leaves: list[int], roles: list[tuple[int, int]], used: list[int], strategy: str
) -> None:
    world = fabric(*leaves)
    names = [f"l{leaf}-n{node}" for leaf, nodes in enumerate(leaves) for node in range(nodes)]
    for at, number in enumerate(used):
        busy(world, names[number % len(names)], 2, name=f"busy-{at}")
    own = tuple(Role(Request(gpus=gpus), f"r{at}", pods) for at, (pods, gpus) in enumerate(roles))
    world.tell(WorkloadChanged(gang("train", own, rank_order=True, placement_strategy=strategy))).settle()
    pods = world.state.pods.get("default/train", {})
    if len(pods) < 2:
        return
    assert sorted(pod.rank for pod in pods.values()) == list(range(len(pods)))
    nodes = nodes_by_rank(world, "train")
    distinct = set(nodes)
    leaves_used = {leaf_of(node) for node in nodes}
    spines = {int(leaf[1:]) // 2 for leaf in leaves_used}
    # Each level must be crossed once less than it has domains in use; no order crosses less.
    assert hops(nodes) == len(distinct) - 1 + len(leaves_used) - 1 + len(spines) - 1
