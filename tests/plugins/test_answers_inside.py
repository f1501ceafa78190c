"""Answers of plugins inside the scheduler, which nothing stands between: whatever they are, the cycle goes on."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import encode_plan
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.registry import Ordering
from tests.worlds import World


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise self


class TrapArray(np.ndarray[Any, Any]):
    """An array that raises wherever it is used, and not where it is given."""

    def __array_ufunc__(self, *arguments: Any, **named: Any) -> Any:
        raise RuntimeError("a trap")


class UnprintableAnswer:
    def __repr__(self) -> str:
        raise RuntimeError("a trap")


def raises_without_words(size: int) -> Any:
    raise UnspeakableError


ANSWERS: dict[str, Any] = {
    "an exception without words": raises_without_words,
    "a subclass of an array": lambda size: np.zeros(size, np.int64).view(TrapArray),
    "a masked array": lambda size: np.ma.masked_array(np.zeros(size, np.int64), mask=True),
    "one number": lambda size: np.array(5),
    "rows without numbers": lambda size: np.zeros((size, 0), np.int64),
    "rows of rows": lambda size: np.zeros((size, 1, 1), np.int64),
    "something unprintable": lambda size: UnprintableAnswer(),
}


class Score:
    name, version, weight = "odd", "1", 10

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def score(self, view: Any, want: Any, nodes: Any) -> Any:
        return self.answer(len(nodes))


class Filter(Score):
    reason, is_static = Reason.PLUGIN, False
    score = None  # type: ignore[assignment]

    def filter(self, view: Any, want: Any, nodes: Any) -> Any:
        return self.answer(len(nodes))


class Order(Score):
    score = None  # type: ignore[assignment]

    def queue_order(self, view: Any, queues: Any, need: Any, since_s: Any) -> Any:
        return self.answer(len(queues))


class Applies(Score):
    def score(self, view: Any, want: Any, nodes: Any) -> Any:
        return np.zeros(len(nodes), np.int64)

    def applies(self, want: Any) -> Any:
        return self.answer(1)


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("plugin", [Score, Filter, Order, Applies])
def test_an_odd_answer_is_reported_and_the_plan_is_the_one_without_it(plugin: type, answer: str) -> None:
    def world(registry: Any) -> World:
        made = World(nodes=3, plugins=registry).queue("lab").queue("shop")
        return made.submit("a", gpus_each=1, queue="lab").submit("b", gpus_each=2, queue="shop")

    registry, plain = builtin_registry(), builtin_registry()
    registry.add(plugin(ANSWERS[answer]))
    plan = decide(world(registry).snapshot(), DEFAULT_POLICY, registry)
    without = decide(world(plain).snapshot(), DEFAULT_POLICY, plain)
    assert [(note.code, note.subject) for note in plan.notes] == [("plugin-set-aside", "odd")]
    assert encode_plan(replace(plan, notes=(), rules="")) == encode_plan(replace(without, rules=""))


class WorkloadOrder:
    name, version = "odd", "1"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def workload_order(self, workload: Any, policy: Any) -> Any:
        return self.answer(1)


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_odd_order_of_a_workload_is_reported(answer: str) -> None:
    order = Ordering((WorkloadOrder(ANSWERS[answer]),), DEFAULT_POLICY)
    _, faults = order(Workload("default/a", (Role(Request()),)))
    assert [fault.plugin for fault in faults] == ["odd"]
