"""Worlds in which nodes, GPUs and links fail."""

from msgspec.structs import replace

from kaiwo.model.events import NodeChanged, PodGone
from kaiwo.model.node import Node
from kaiwo.model.plan import EvictionCause, Plan
from kaiwo.model.recovery import after_failure, after_return, remember_bad
from kaiwo.model.workload import Phase
from tests.worlds import World


def fail(world: World, *nodes: str, fenced: bool = True) -> World:
    """The nodes stop working. Not fenced: nobody knows whether their pods still run."""
    return world.tell(*(NodeChanged(_failed(world, name, fenced)) for name in nodes))


def _failed(world: World, name: str, fenced: bool) -> Node:
    node = world.state.node_objects[name]
    failure = after_failure(node.failure, max(1, world.now_s), fenced)
    return replace(node, ready=False, reason="its machine is off", failure=failure)


def restore(world: World, *nodes: str) -> World:
    for name in nodes:
        node = world.state.node_objects[name]
        back = replace(node, ready=True, reason="", failure=after_return(node.failure, world.now_s))
        world.tell(NodeChanged(back))
    return world


def fail_gpu(world: World, node: str, gpu: str) -> World:
    found = world.state.node_objects[node]
    gpus = tuple(
        replace(each, healthy=False, reason="ECC", failed_s=max(1, world.now_s)) if each.id == gpu else each
        for each in found.gpus
    )
    return world.tell(NodeChanged(replace(found, gpus=gpus)))


def remember(world: World, plan: Plan) -> None:
    """What a cluster writes down about nodes."""
    for bad in plan.bad_nodes:
        node = world.state.node_objects[bad.node]
        world.tell(NodeChanged(replace(node, failure=remember_bad(node.failure, [bad.workload]))))


def recover(world: World, cycles: int = 8) -> list[Plan]:
    """Cycles until nothing more happens; what is evicted is gone before the next one."""
    plans = []
    for _ in range(cycles):
        plan = world.decide()
        plans.append(plan)
        remember(world, plan)
        world.let_go()
        if plan.is_empty:
            break
    return plans


def touched(plans: list[Plan]) -> set[str]:
    """All pods that were stopped for the recovery, as `workload/pod`."""
    return {
        f"{each.workload}/{each.pod}"
        for plan in plans
        for each in plan.evictions
        if each.cause is EvictionCause.RECOVERY
    }


def other_evictions(plans: list[Plan]) -> list[str]:
    return [each.workload for plan in plans for each in plan.evictions if each.cause is not EvictionCause.RECOVERY]


def gone(world: World, workload: str, pod: str) -> World:
    return world.tell(PodGone(f"default/{workload}", pod))


def is_whole(world: World, workload: str) -> bool:
    found = world.state.workloads[f"default/{workload}"]
    pods = world.state.pods.get(found.name, {})
    return sum(pod.phase is Phase.RUNNING for pod in pods.values()) == found.pods
