"""A request for more than can be counted does not stop the scheduler: the rest is decided as ever."""

import pytest

from kaiwo.clusters.kubernetes.decode.quantities import MAX_BYTES, MAX_CPU_MILLI, MAX_GPUS, read_requested
from kaiwo.manifests.values.quantities import MIB
from kaiwo.model.events import QueueChanged, WorkloadChanged
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from tests.worlds import World

HUGE = str(2**63 - 1)


@pytest.mark.parametrize("name", ["cpu", "memory", "amd.com/gpu", "nvidia.com/gpu", "hugepages-2Mi", "acme.io/fpga"])
@pytest.mark.parametrize("value", [HUGE, "9.2e18", "8Ei", 2**63 - 1])
def test_what_the_server_lets_through_is_bounded(name: str, value: str | int) -> None:
    assert 0 < read_requested(name, value) <= MAX_BYTES


def test_a_huge_gang_in_a_contended_cluster_waits_and_all_else_goes_on() -> None:
    world = World(nodes=2).tell(QueueChanged(Queue("a", gpu=QueueAmounts(8_000))), QueueChanged(Queue("b")))
    world.running("guest", gpus=16, queue="b")
    request = Request(MAX_CPU_MILLI, MAX_BYTES // MIB, gpus=MAX_GPUS, extended=(("hugepages-2Mi", MAX_BYTES),))
    for number in range(50):
        huge = Workload(f"default/huge-{number}", (Role(request, count=10_000),), "a", priority=100, submitted_s=number)
        world.tell(WorkloadChanged(huge))
    world.submit("small", gpus_each=1, queue="a")
    world.settle()
    assert world.is_running("small")
    assert not any(name.startswith("default/huge") for name in world.state.pods)
