"""The published policies, run by the shipped `decide`."""

from pathlib import Path

import numpy as np
import pytest

from kaiwo.model.errors import ConfigError
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.simulate.openb_run import run_openb
from kaiwo.simulate.openb_trace import OpenbTrace, read_openb
from kaiwo.simulate.placement_policies import BASELINES, POLICY_NAMES, placement_policy
from kaiwo.simulate.typical_requests import typical_requests
from kaiwo.simulate.virtual_clock import Arrival, VirtualClock
from tests.simulate.small_trace import write_trace

NODES = ["a,64000,64000,2,T4", "b,64000,64000,2,T4", "c,4000,64000,2,G2"]
HALF, WHOLE, CPU = "h,1000,10,1,500,", "w,1000,10,1,1000,", "c,1000,10,0,0,"


def trace_of(folder: Path, *pods: str) -> OpenbTrace:
    return read_openb(write_trace(folder, NODES, pods), "default")


def places(trace: OpenbTrace, policy: str) -> list[str]:
    """Node and devices of each arrival; empty: dropped."""
    chosen = placement_policy(policy, trace.requests, seed=42)
    clock = VirtualClock(trace.nodes, chosen.policy, chosen.plugins, drops=True)
    found = []
    for number, request in enumerate(trace.requests):
        arrival = Arrival(number, Workload(f"default/p{number}", (Role(request),)))
        outcome = next(iter(clock.run([arrival])))
        if chosen.forgets_scores:
            clock.runner.state.caches.clear()
        starts = [f"{each.node}/{'+'.join(share.gpu[-1] for share in each.devices)}" for each in outcome.starts]
        found.append(starts[0] if starts else "")
    return found


def test_best_fit_takes_the_node_that_is_left_with_least(tmp_path: Path) -> None:
    assert places(trace_of(tmp_path, HALF, WHOLE, HALF, CPU), "best-fit") == ["c/0", "c/1", "c/0", "c/"]


def test_packing_prefers_shared_devices_then_used_nodes(tmp_path: Path) -> None:
    assert places(trace_of(tmp_path, HALF, WHOLE, HALF, WHOLE), "gpu-packing") == ["a/0", "a/1", "a/0", "b/0"]


def test_clustering_keeps_kinds_apart(tmp_path: Path) -> None:
    """A whole GPU goes to an unused node rather than to one with shares only."""
    assert places(trace_of(tmp_path, HALF, WHOLE, HALF, WHOLE), "gpu-clustering") == ["a/0", "b/0", "a/0", "b/1"]


def test_dot_product_avoids_the_emptiest_node(tmp_path: Path) -> None:
    assert places(trace_of(tmp_path, "w,4000,10,1,1000,"), "dot-product") == ["c/0"]


def test_the_nodes_take_turns(tmp_path: Path) -> None:
    assert places(trace_of(tmp_path, WHOLE, WHOLE, WHOLE, WHOLE), "seed") == ["a/0", "b/0", "c/0", "a/1"]


def test_fgd_does_not_strand_gpus_behind_a_lack_of_cpu(tmp_path: Path) -> None:
    """A pod without GPUs takes CPU where it is plentiful, not the last of a node with free GPUs."""
    needy = "c,4000,10,0,0,"
    assert places(trace_of(tmp_path, needy, WHOLE, WHOLE), "fgd")[0] == "a/"


def test_random_draws_follow_from_the_seed(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, *[HALF] * 10)
    assert places(trace, "random") == places(trace, "random")
    assert len({place[0] for place in places(trace, "random")}) > 1


def test_an_unknown_policy_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no placement policy 'fdg'; choose one of: fragmentation-aware, .*fgd"):
        placement_policy("fdg", (), 42)


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_every_policy_fills_a_cluster_that_its_pods_fill_exactly(tmp_path: Path, policy: str) -> None:
    figures = run_openb(trace_of(tmp_path, *["w,100,10,1,1000,"] * 6), 42, policy, "learned")
    assert figures.allocated_at_100 == 100
    assert figures.fragmentation_ratio.keys() == {"60", "80", "90"}


def test_typical_requests_end_at_the_threshold() -> None:
    requests = [Request(1000, 1, 1)] * 90 + [Request(2000, 1, 1, 500)] * 5 + [Request(3000, 1)] * 5
    typical = typical_requests(requests)
    assert typical.cpu_milli.tolist() == [1000, 3000]  # equally frequent ones in the published order
    assert typical.weight.tolist() == pytest.approx([90 / 95, 5 / 95])


def test_what_a_typical_request_cannot_use_is_a_fragment() -> None:
    typical = typical_requests([Request(2000, 1, 1, 600)], percent=100)
    devices, access = np.array([[1000, 500], [1000, 500], [500, 500]]), np.ones((1, 3), np.bool_)
    assert typical.fragments(np.array([2000, 1999, 2000]), devices, access).tolist() == [500, 1500, 1000]
    assert typical.fragments(np.array([2000] * 3), devices, ~access).tolist() == [1500, 1500, 1000]


def test_the_baselines_are_named_in_the_help() -> None:
    assert {"fgd", "best-fit", "gpu-packing", "gpu-clustering", "dot-product", "random", "seed"} == set(BASELINES)
