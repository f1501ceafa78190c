"""Two plans that differ are told apart, whatever it is that differs."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.cli.verbs.operate.replay import difference_lines, plan_lines
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.plan import Note, Plan, Start, Wait

START = Start("default/train", "main-0", "node-1", (Share("gpu-0", 1000, 100),))
WAIT = Wait("lab", "d1", (Obstacle(Reason.GANG, 2, 1, "pods"),))
PLAN = Plan(starts=(START,), waits=(WAIT,), rules="r1")


@pytest.mark.parametrize(
    ("now", "then_line", "now_line"),
    [
        (replace(PLAN, rules=""), 'rules "r1"', 'rules ""'),
        (replace(PLAN, starts=()), "start train/main-0 on node-1: gpu-0", None),
        (replace(PLAN, notes=(Note("budget-spent"),)), None, 'notes {"code":"budget-spent"}'),
        (replace(PLAN, unclaimed=(("reclaim", "lab", "d1"),)), None, 'unclaimed ["reclaim","lab","d1"]'),
    ],
)
def test_what_differs_is_named(now: Plan, then_line: str | None, now_line: str | None) -> None:
    only_then, only_now = difference_lines(PLAN, now)
    assert only_then == ([then_line] if then_line else [])
    assert only_now == ([now_line] if now_line else [])


def test_values_that_have_the_same_words_are_told_in_full() -> None:
    wait = replace(WAIT, obstacles=(Obstacle(Reason.GANG, 2, 0, "pods"),))
    now = replace(PLAN, starts=(replace(START, until_s=9),), waits=(wait,))
    assert plan_lines(now) == plan_lines(PLAN)
    only_then, only_now = difference_lines(PLAN, now)
    assert only_then[1].startswith("waits {")
    assert '"have":1' in only_then[1]
    assert only_now[0].startswith("starts {")
    assert '"until_s":9' in only_now[0]


def test_another_order_is_a_difference() -> None:
    two = replace(PLAN, unpromised=("default/a", "default/b"))
    only_then, only_now = difference_lines(two, replace(two, unpromised=("default/b", "default/a")))
    assert (only_then, only_now) == (['unpromised ["default/a","default/b"]'], ['unpromised ["default/b","default/a"]'])


@given(st.sampled_from(Plan.__struct_fields__), st.integers(0, 1))
def test_no_field_can_differ_in_silence(field: str, side: int) -> None:
    kind: Any = next(each for each in msgspec.structs.fields(Plan) if each.name == field).default
    other = replace(Plan(), **{field: ("x",) if kind == () else "x" if kind == "" else 1})
    plans = (other, Plan()) if side else (Plan(), other)
    assert any(difference_lines(*plans))
    assert difference_lines(other, other) == ([], [])
