"""Time is virtual: work arrives and ends in order, and the shipped `decide` places it."""

import time

from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.plugins.builtin.gpu_allocation import FirstFit
from kaiwo.plugins.registry import Registry
from kaiwo.simulate.virtual_clock import Arrival, VirtualClock
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.view import View

NODE = Node("node-0", 8000, 8000, gpus=(Gpu("gpu-0", "T4", 16_000),))


def whole_gpu(name: str, at_s: int, runs_s: int = 0) -> Arrival:
    return Arrival(at_s, Workload(f"default/{name}", (Role(Request(1000, 10, 1)),), submitted_s=at_s), runs_s)


def started(clock: VirtualClock, *arrivals: Arrival) -> list[tuple[str, ...]]:
    return [tuple(start.workload for start in outcome.starts) for outcome in clock.run(arrivals)]


def test_work_that_fits_nowhere_is_dropped_and_never_tried_again() -> None:
    clock = VirtualClock([NODE], Policy(), BUILTIN, drops=True)
    arrivals = (whole_gpu("a", 0, runs_s=10), whole_gpu("b", 5), whole_gpu("c", 20))
    assert started(clock, *arrivals) == [("default/a",), (), ("default/c",)]
    assert set(clock.runner.state.workloads) == {"default/c"}


def test_a_place_is_free_at_the_second_its_work_ends() -> None:
    clock = VirtualClock([NODE], Policy(), BUILTIN, drops=True)
    assert started(clock, whole_gpu("a", 0, runs_s=10), whole_gpu("b", 9), whole_gpu("c", 10)) == [
        ("default/a",),
        (),
        ("default/c",),
    ]


def test_work_that_waits_starts_when_something_ends() -> None:
    clock = VirtualClock([NODE], Policy(), BUILTIN, drops=False)
    ended: list[tuple[str, int]] = []
    arrivals = [whole_gpu("a", 0, runs_s=10), whole_gpu("b", 1, runs_s=5), whole_gpu("c", 2, runs_s=1)]
    list(clock.run(arrivals, lambda name, at_s: ended.append((name, at_s))))
    assert ended == [("default/a", 10), ("default/b", 15), ("default/c", 16)]
    assert not clock.runner.state.pods


class WaitsForOthers(FirstFit):
    """A strategy that is kept from the processor, as by the other processes of a busy machine."""

    name = "waits-for-others"

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        time.sleep(0.2)
        return super().allocation(view, want, node, columns)


def test_a_decision_takes_as_long_as_the_processor_works_on_it() -> None:
    plugins = Registry((*BUILTIN.plugins, WaitsForOthers()))
    clock = VirtualClock([NODE], Policy(gpu_strategy="waits-for-others"), plugins, drops=True)
    (outcome,) = clock.run([whole_gpu("a", 0)])
    assert outcome.starts
    assert 0 < outcome.took_ns < 200_000_000
