"""The default placement: once the mix of requests is known, what it can use stays free for it."""

from pathlib import Path

import pytest

from kaiwo.decide.cycle import BUILTIN
from kaiwo.history import Journal
from kaiwo.model.events import NodeChanged, NodeGone, QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.runtime.loop.price_refresh import refreshed_prices
from kaiwo.runtime.loop.replay import replay


def node(name: str, gpus: int, cpus: int, model: str = "G2") -> Node:
    devices = tuple(Gpu(f"gpu-{at}", model, 16_000) for at in range(gpus))
    return Node(name, 1000 * cpus, 10**6, 110, devices)


class Learner:
    """A scheduler that has seen a mix of requests; nothing of that mix runs any more."""

    def __init__(
        self, nodes: list[Node], seen: list[Request], policy: Policy | None = None, journal: Journal | None = None
    ) -> None:
        self.runner = CycleRunner(journal, policy or Policy(), BUILTIN)
        self._take([QueueChanged(Queue("default")), *(NodeChanged(each) for each in nodes)])
        for number, request in enumerate(seen * (1 + 16 // len(seen))):
            name = f"default/seen-{number}"
            self._take([WorkloadChanged(Workload(name, (Role(request),))), WorkloadGone(name)])
        self._number = 0

    def _take(self, events: list) -> None:
        self.runner.state.patch(events)
        self.runner.journal_events(events)

    def place(self, request: Request) -> tuple[str, tuple[str, ...]]:
        """The node and the devices."""
        self._number += 1
        self._take([WorkloadChanged(Workload(f"default/w{self._number}", (Role(request),), submitted_s=self._number))])
        decision = self.runner.cycle(self._number)
        assert decision is not None
        self.last_notes = decision.plan.notes
        assert len(decision.plan.starts) == 1
        start = decision.plan.starts[0]
        return start.node, tuple(share.gpu for share in start.devices)


def test_cpu_is_taken_where_gpus_do_not_need_it() -> None:
    """Both nodes could still start a GPU pod afterwards, but only one of them two."""
    world = Learner([node("a", 2, 8), node("b", 2, 64)], [Request(4000, 10, 1)])
    assert world.place(Request(4000, 10))[0] == "b"


def test_it_has_no_opinion_once_all_gpus_are_gone() -> None:
    world = Learner([node("a", 2, 8), node("b", 2, 64)], [Request(4000, 10, 1)])
    world.place(Request(4000, 10))
    world._take([NodeGone("a"), NodeGone("b"), NodeChanged(node("c", 0, 64))])
    assert world.place(Request(4000, 10))[0] == "c"
    assert world.last_notes == ()


def test_a_model_that_others_need_is_left_to_them() -> None:
    seen = [Request(1000, 10, 1, gpu_models=("T4",)), Request(1000, 10, 1)]
    world = Learner([node("a", 2, 64, "T4"), node("b", 4, 64)], seen)
    assert world.place(Request(1000, 10, 1))[0] == "b"
    assert world.place(Request(1000, 10, 1, gpu_models=("T4",)))[0] == "a"


def test_a_share_goes_beside_the_one_that_completes_it() -> None:
    seen = [Request(100, 10, 1, 700), Request(100, 10, 1, 300), Request(100, 10, 1, 500)]
    world = Learner([node("a", 3, 64)], seen)
    first = world.place(Request(100, 10, 1, 500))[1]
    second = world.place(Request(100, 10, 1, 700))[1]
    assert first != second
    assert world.place(Request(100, 10, 1, 300))[1] == second
    assert world.place(Request(100, 10, 1, 500))[1] == first


def test_gpus_are_left_together_for_requests_of_several() -> None:
    seen = [Request(1000, 10, 4), Request(1000, 10, 1, 500), Request(1000, 10, 1)]
    world = Learner([node("a", 4, 64), node("b", 2, 64)], seen)
    assert world.place(Request(1000, 10, 1))[0] == "b"
    assert world.place(Request(1000, 10, 1))[0] == "b"
    assert world.place(Request(1000, 10, 4))[0] == "a"


def test_where_all_is_alike_and_whole_nothing_is_learned() -> None:
    world = Learner([node("a", 4, 64), node("b", 4, 64)], [Request(1000, 10, 1)])
    assert [world.place(Request(1000, 10, 1))[0] for _ in range(5)] == ["a"] * 4 + ["b"]
    assert world.runner.state.prices is None


@pytest.mark.parametrize(
    "policy",
    [
        Policy(gpu_strategy="best-fit"),
        Policy(placement="spread"),
        Policy(disabled_plugins=("request-mix",)),
        Policy(score_weights={"request-mix": 0}),
    ],
)
def test_other_strategies_do_not_follow_the_mix(policy: Policy) -> None:
    world = Learner([node("a", 2, 8), node("b", 2, 64)], [Request(4000, 10, 1, 500)], policy)
    world.place(Request(1000, 10))
    assert world.runner.state.prices is None


def test_prices_are_computed_seldom() -> None:
    world = Learner([node(f"n{at}", 8, 64) for at in range(40)], [Request(100, 10, 1, 500)])
    told = set()
    for _ in range(100):
        world.place(Request(100, 10, 1, 10))
        assert world.runner.state.prices is not None
        told.add(world.runner.state.prices.arrivals)
    assert len(told) == 3  # at 18, 36 and 72 of 117 arrivals


@pytest.mark.parametrize("segment_bytes", [1, 2_000, 2**23])
def test_decisions_at_learned_prices_replay_to_the_same_plan(tmp_path: Path, segment_bytes: int) -> None:
    seen = [Request(4000, 10, 1, 700), Request(1000, 10, 1, 300), Request(8000, 10, 1)]
    with Journal(tmp_path / "journal", segment_bytes=segment_bytes) as journal:
        world = Learner([node("a", 2, 8), node("b", 2, 64), node("c", 1, 8, "T4")], seen, journal=journal)
        for request in (seen[1], Request(4000, 10), seen[0], seen[1], seen[2]):
            world.place(request)
    for number in range(1, 6):
        result = replay(str(tmp_path), number)
        assert result.now == result.then
        assert result.differences == ()


def test_where_nothing_is_free_the_prices_of_before_stay_in_force() -> None:
    world = Learner([node("a", 1, 64), node("b", 1, 64)], [Request(100, 10, 1, 500)])
    for _ in range(4):
        world.place(Request(100, 10, 1, 500))
    before = world.runner.state.prices
    assert before is not None
    after = refreshed_prices(world.runner.state)
    assert after is not None
    assert after.prices.kinds == before.kinds
    assert after.prices.arrivals == world.runner.state.seen_requests.arrivals > before.arrivals
