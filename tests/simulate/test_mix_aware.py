"""The policy that keeps what the mix of requests can use."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.simulate.mix_aware import RequestMix, request_mix
from kaiwo.simulate.openb_run import MixSource, run_openb
from kaiwo.simulate.openb_trace import OpenbTrace, read_openb
from kaiwo.simulate.placement_policies import placement_policy
from kaiwo.simulate.virtual_clock import Arrival, VirtualClock
from tests.simulate.small_trace import write_trace

T4, G2 = "a,8000,64000,2,T4", "b,64000,64000,2,G2"


def trace_of(folder: Path, nodes: list[str], *pods: str) -> OpenbTrace:
    return read_openb(write_trace(folder, nodes, pods), "default")


def place(trace: OpenbTrace, request: Request, mix: RequestMix) -> str:
    chosen = placement_policy("mix-aware", trace.requests, 42, mix)
    clock = VirtualClock(trace.nodes, chosen.policy, chosen.plugins, drops=True)
    (outcome,) = clock.run([Arrival(0, Workload("default/p", (Role(request),)))])
    return outcome.starts[0].node if outcome.starts else ""


def test_cpu_is_taken_where_gpus_do_not_need_it(tmp_path: Path) -> None:
    """Both nodes could still start one pod of the mix, but only the second could start two."""
    trace = trace_of(tmp_path, [T4, G2], "w,4000,10,1,1000,")
    mix = request_mix(Counter(trace.requests), trace.nodes)
    assert place(trace, Request(4000, 10), mix) == "b"


def test_a_model_that_others_need_is_left_to_them(tmp_path: Path) -> None:
    even = "a,64000,64000,2,T4"
    trace = trace_of(tmp_path, [even, G2], "w,1000,10,1,1000,T4", "w,1000,10,1,1000,")
    mix = request_mix(Counter(trace.requests), trace.nodes)
    assert mix.pressure == {"T4": pytest.approx(1.0), "G2": 0}
    assert place(trace, Request(1000, 10, 1), mix) == "b"
    assert place(trace, Request(1000, 10, 1, gpu_models=("T4",)), mix) == "a"


def test_what_the_mix_can_use_ends_with_the_cpu() -> None:
    mix = request_mix({Request(4000, 0, 1): 1}, ())
    devices, access = np.array([[1000, 1000, 400]] * 3), np.ones((1, 3), np.bool_)
    usable = mix.usable(np.array([8000, 4000, 3999]), devices, access)
    assert usable.tolist() == pytest.approx([2000, 0.6 * 2000 + 0.4 * 1000, 0])
    assert mix.usable(np.array([8000] * 3), devices, ~access).tolist() == [0, 0, 0]


def test_several_gpus_count_in_whole_groups() -> None:
    mix = request_mix({Request(0, 0, 2): 1}, ())
    assert mix.usable(np.array([0]), np.array([[1000, 1000, 1000]]), np.ones((1, 1), np.bool_)).tolist() == [2000]


def test_a_learned_mix_is_renewed_whenever_arrivals_have_doubled(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, [T4], *["w,100,10,1,500,"] * 40)
    source = MixSource(trace, trace.arrivals(42), "learned")
    assert source.first().milli.tolist() == [1000]
    renewed = [number for number in range(1, 41) if (mix := source.next(number)) is not None and mix.milli[0] == 500]
    assert renewed == [16, 32]
    known = MixSource(trace, trace.arrivals(42), "known")
    assert known.first().milli.tolist() == [500]
    assert [known.next(number) for number in range(1, 41)] == [None] * 40


def test_the_same_run_gives_the_same_figures(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, [T4, G2], *["w,3000,10,1,500,", "h,500,10,1,1000,", "c,2000,10,0,0,"] * 10)
    first, second = (run_openb(trace, 42, "mix-aware", "learned") for _ in range(2))
    assert first.allocated_at_100 == second.allocated_at_100
    assert first.fragmentation_ratio == second.fragmentation_ratio


def test_a_node_has_the_same_value_whichever_nodes_are_looked_at_together() -> None:
    mix = request_mix({Request(100 * at, 0, 1, 10 * at): at for at in range(1, 90)}, ())
    cpu, devices = np.arange(50) * 997 % 9000, np.arange(200).reshape(50, 4) * 619 % 1001
    access = np.ones((len(mix.milli), 50), np.bool_)
    together = mix.usable(cpu, devices, access).tolist()
    alone = [mix.usable(cpu[[at]], devices[[at]], access[:, [at]])[0] for at in range(50)]
    assert together == alone
