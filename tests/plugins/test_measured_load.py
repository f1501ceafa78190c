"""`load-balanced` follows what agents measure, beside what is allocated; without agents, what is allocated decides."""

from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.events import Event, GpuLoadsMeasured, NodeChanged, QueueChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.plan import Start
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.snapshot.cluster_state import ClusterState

BALANCED = QueueChanged(Queue("default", strategy="load-balanced"))
WHOLE, SHARE = Request(1000, 10, 1), Request(1000, 10, 1, 250)


def node(name: str, gpus: int = 2) -> NodeChanged:
    return NodeChanged(Node(name, 64_000, 64_000, 110, tuple(Gpu(f"gpu-{at}", "G2", 16_000) for at in range(gpus))))


def busy(**permille: int) -> GpuLoadsMeasured:
    """Every GPU of these nodes."""
    return GpuLoadsMeasured({name: {"gpu-0": load, "gpu-1": load} for name, load in permille.items()})


def starts(*events: Event, asked: Request = WHOLE, policy: Policy = DEFAULT_POLICY, times: int = 1) -> list[Start]:
    runner = CycleRunner(None, policy, BUILTIN)
    work = [WorkloadChanged(Workload(f"default/w{at}", (Role(asked),))) for at in range(times)]
    runner.state.patch([*events, *work])
    decision = runner.cycle(1)
    assert decision is not None
    return list(decision.plan.starts)


def test_a_busy_node_is_used_last() -> None:
    assert starts(BALANCED, node("a"), node("b"))[0].node == "a"
    assert starts(BALANCED, node("a"), node("b"), busy(a=900, b=100))[0].node == "b"
    assert starts(BALANCED, node("a"), node("b"), busy(a=900), busy(a=100, b=500))[0].node == "a"


def test_what_is_allocated_counts_too_so_not_all_go_to_one_idle_node() -> None:
    found = starts(BALANCED, node("a"), node("b"), busy(a=300, b=0), times=3)
    assert [each.node for each in found] == ["b", "a", "b"]


def test_other_strategies_do_not_look_at_loads() -> None:
    pack = QueueChanged(Queue("default"))
    emptiest = QueueChanged(Queue("default", strategy="worst-fit"))
    for queue in (pack, emptiest):
        assert starts(queue, node("a"), node("b"), busy(a=900, b=100))[0].node == "a"


def test_a_policy_that_spreads_looks_at_loads_with_a_weight() -> None:
    pack, nodes = QueueChanged(Queue("default")), (node("a"), node("b"))
    spread = Policy(placement="spread", gpu_strategy="load-balanced")
    assert starts(pack, *nodes, busy(a=900, b=100), policy=spread)[0].node == "b"
    without = Policy(placement="spread", score_weights={"measured-load": 0})
    assert starts(pack, *nodes, busy(a=900, b=100), policy=without)[0].node == "a"


def test_a_share_goes_to_the_least_busy_device() -> None:
    loads = GpuLoadsMeasured({"a": {"gpu-0": 800, "gpu-1": 100}})
    assert [share.gpu for share in starts(BALANCED, node("a"), asked=SHARE)[0].devices] == ["gpu-0"]
    assert [share.gpu for share in starts(BALANCED, node("a"), loads, asked=SHARE)[0].devices] == ["gpu-1"]


def test_a_new_load_counts_for_the_next_workload_of_the_same_shape() -> None:
    runner = CycleRunner(None, Policy(), BUILTIN)
    runner.state.patch([BALANCED, *(node(name, gpus=8) for name in ("a", "b"))])
    chosen = []
    for at, event in enumerate((busy(a=0, b=900), busy(a=900, b=0), busy(a=900, b=0))):
        runner.state.patch([event, WorkloadChanged(Workload(f"default/w{at}", (Role(WHOLE),)))])
        decision = runner.cycle(at)
        assert decision is not None
        chosen.append(decision.plan.starts[0].node)
    assert chosen == ["a", "b", "b"]


def test_loads_are_part_of_the_state_until_their_agent_is_silent() -> None:
    state = ClusterState()
    state.patch([node("a"), busy(a=500, b=100)])
    assert busy(a=500, b=100) in state.events()
    fork = state.fork()
    fork.patch([GpuLoadsMeasured({"b": {}})])
    assert fork.gpu_loads.keys() == {"a"}
    assert state.gpu_loads.keys() == {"a", "b"}
    fork.patch([GpuLoadsMeasured({"a": {}})])
    assert not any(isinstance(event, GpuLoadsMeasured) for event in fork.events())
