"""Worlds with a network: nodes with spine and leaf labels, and the topology that names them."""

from typing import Any

from kaiwo.model.affinity import NodeRule
from kaiwo.model.events import TopologyChanged
from kaiwo.model.network.constraint import TopologyConstraint
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.model.plan import Plan
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, SubGroup, Workload
from tests.worlds import World

SPINE, LEAF = "spine", "leaf"
FABRIC = Topology("fabric", (TopologyLevel(SPINE, "net/spine"), TopologyLevel(LEAF, "net/leaf")))


def fabric(*leaves: int, gpus: int = 8, leaves_per_spine: int = 2, policy: Policy = DEFAULT_POLICY) -> World:
    """One leaf for each number of nodes: `l0-n0` is the first node of the first leaf."""
    world = World(nodes=0, policy=policy).tell(TopologyChanged(FABRIC))
    for leaf, nodes in enumerate(leaves):
        labels = {"net/spine": f"spine-{leaf // leaves_per_spine}", "net/leaf": f"leaf-{leaf}"}
        for node in range(nodes):
            name = f"l{leaf}-n{node}"
            world.node(name, gpus=gpus, labels={**labels, "host": name})
    return world


def leaf_of(node: str) -> str:
    return node.partition("-")[0]


def nodes_of(world: World, workload: str) -> dict[str, str]:
    """By pod."""
    return {name: pod.node for name, pod in world.state.pods.get(f"default/{workload}", {}).items()}


def leaves_of(world: World, workload: str) -> set[str]:
    return {leaf_of(node) for node in nodes_of(world, workload).values()}


def busy(world: World, node: str, gpus: int = 8, name: str = "", **changes: Any) -> World:
    """Work that holds GPUs of one node."""
    only = Request(gpus=gpus, node_rules=(NodeRule("host", "In", (node,)),))
    world.submit(name or f"busy-{node}", request=only, **changes).settle()
    return world


def roles_of(*parts: tuple[str, int, int, TopologyConstraint | None], group: str = "") -> tuple[Role, ...]:
    """Name, pods, GPUs of each, levels."""
    return tuple(Role(Request(gpus=gpus), name, pods, group=group, levels=levels) for name, pods, gpus, levels in parts)


def gang(name: str, roles: tuple[Role, ...], groups: tuple[SubGroup, ...] = (), **changes: Any) -> Workload:
    return Workload(f"default/{name}", roles, groups=groups, **changes)


def chosen(plan: Plan, workload: str, part: str = "") -> tuple[str, str]:
    """The level and the domain that the plan records."""
    found = next(each for each in plan.domains if (each.workload, each.part) == (f"default/{workload}", part))
    return found.level, found.domain
