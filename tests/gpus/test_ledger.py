"""The law of the ledger: no sequence of events gives away more than there is, or loses any of it."""

import pytest

from kaiwo.model.events import NodeChanged, PodGone
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import partition_milli
from kaiwo.model.node import Node
from tests.conftest import IS_FULL, IS_QUICK
from tests.gpus.ledger import MACHINES, ODD_MIB, Ledger
from tests.worlds import World

OPERATIONS = 1_000_000 if IS_FULL else 2_000 if IS_QUICK else 50_000
PARTS = 10  # runs of their own, so that they can be spread over the cores


@pytest.mark.parametrize("seed", range(PARTS))
def test_no_overcommit_and_no_leak_in_a_million_random_operations(seed: int) -> None:
    ledger = Ledger(seed)
    for number in range(OPERATIONS // PARTS):
        ledger.check(ledger.step())
        if number % 500 == 0:
            for node in MACHINES:
                ledger.check(node)
    assert ledger.admitted > OPERATIONS // PARTS // 10
    assert ledger.refused
    assert ledger.recut
    ledger.restart()
    ledger.tell(*(PodGone(pod.workload, pod.name) for pod in ledger.pods.values()))
    ledger.pods.clear()
    for node in MACHINES:
        ledger.check(node)
        assert (ledger.state.nodes.gpus[ledger.state.nodes.row[node], 0] == ledger.state.nodes.device_milli[
            ledger.state.nodes.row[node]
        ]).all()  # fmt: skip


def test_of_24_requests_of_2000_mib_23_fit_on_46068() -> None:
    world = World(nodes=0)
    world.tell(NodeChanged(Node("n", gpus=(Gpu("gpu-0", "L40S", ODD_MIB),))))
    for number in range(24):
        world.submit(f"w{number:02d}", memory_mib=2_000)
    world.settle()
    assert sum(world.is_running(f"w{number:02d}") for number in range(24)) == 23


@pytest.mark.parametrize("count", range(1, 17))
def test_the_parts_of_a_gpu_make_exactly_one(count: int) -> None:
    parts = [partition_milli(index, count) for index in range(count)]
    assert sum(parts) == 1000
    assert max(parts) - min(parts) <= 1
