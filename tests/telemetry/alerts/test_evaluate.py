"""Alerts begin, fire, are told and end as the rules say, on samples and times that the tests choose."""

from collections.abc import Sequence

import numpy as np
import pytest

from kaiwo.history.series.integer_codec import MISSING
from kaiwo.history.series.measures import SubjectKind
from kaiwo.history.series.series_writer import Frame, KindFrame
from kaiwo.model.alerts.alert import Alert, Silence
from kaiwo.model.alerts.alert_rule import AlertRule, Inhibition, RuleCondition, RuleKind, Side
from kaiwo.telemetry.alerts.evaluate import UNKNOWN_KEPT_S, AlertMemory, evaluate
from kaiwo.telemetry.alerts.rule_set import RuleSet

GPUS = ("node-1/gpu-0", "node-1/gpu-1", "node-2/gpu-0")
HOT = AlertRule("hot", RuleKind.THRESHOLD, "gpu", "temperature_c", bound=90, for_s=20, keep_s=30)


def gpus(heat: Sequence[int], names: Sequence[str] = GPUS, **others: Sequence[int]) -> Frame:
    values = {"temperature_c": heat, **others}
    return {SubjectKind.GPU: KindFrame(tuple(names), {name: np.array(each) for name, each in values.items()})}


def scheduler(**values: int) -> Frame:
    arrays = {name: np.array([value]) for name, value in values.items()}
    return {SubjectKind.SCHEDULER: KindFrame(("scheduler",), arrays)}


class Watch:
    """Evaluates samples ten seconds apart."""

    def __init__(self, *rules: AlertRule, inhibit: Sequence[Inhibition] = ()) -> None:
        self.rules, self.memory, self.now_s = RuleSet(rules, inhibit), AlertMemory(), 1_000_000
        self.silences: list[Silence] = []

    def see(self, frame: Frame, step_s: int = 10) -> list[str]:
        """What the channels are told: `+hot node-1/gpu-0` for one that fires, with `-` for one that is resolved."""
        self.now_s += step_s
        done = evaluate(self.rules, self.memory, frame, self.now_s, self.silences)
        self.memory = done.memory
        return [f"{'-' if alert.resolved_s else '+'}{alert.rule} {alert.subject}" for alert in done.told]

    def alert(self, rule: str, subject: str) -> Alert:
        return self.memory.alerts[rule, subject]


def test_a_threshold_must_hold_for_its_time_and_each_subject_has_its_own_alert() -> None:
    watch = Watch(HOT)
    assert watch.see(gpus([95, 50, 50])) == []
    assert watch.see(gpus([95, 50, 99])) == []
    assert watch.see(gpus([95, 50, 99])) == ["+hot node-1/gpu-0"]
    assert watch.see(gpus([95, 50, 99])) == ["+hot node-2/gpu-0"]
    assert watch.see(gpus([95, 50, 99])) == [], "it is told once"


def test_one_that_holds_for_a_moment_only_is_forgotten() -> None:
    watch = Watch(HOT)
    for heat in (95, 95, 50, 95, 95, 50):
        assert watch.see(gpus([heat, 50, 50])) == []
    assert watch.memory.alerts == {}


def test_a_value_that_swings_around_the_bound_is_one_alert() -> None:
    watch, told = Watch(HOT), []
    for heat in (95, 95, 95, 80, 80, 95, 80, 95, 80, 80, 80, 80, 80):
        told += watch.see(gpus([heat, 50, 50]))
    assert told == ["+hot node-1/gpu-0", "-hot node-1/gpu-0"]


def test_an_unknown_value_neither_begins_nor_ends_an_alert_until_a_quarter_of_an_hour_has_passed() -> None:
    watch, told = Watch(HOT), []
    for _ in range(3):
        told += watch.see(gpus([95, 50, 50]))
    for _ in range(UNKNOWN_KEPT_S // 10 - 1):
        told += watch.see(gpus([MISSING, 50, 50]))
    assert told == ["+hot node-1/gpu-0"]
    assert watch.see(gpus([50, 50], names=GPUS[1:])) == ["-hot node-1/gpu-0"], "a subject that is gone is unknown, too"


def test_a_lower_bound_does_not_take_the_unknown_for_zero() -> None:
    idle = AlertRule("idle", RuleKind.THRESHOLD, "gpu", "temperature_c", Side.BELOW, 10)
    assert Watch(idle).see(gpus([MISSING, 9, 10])) == ["+idle node-1/gpu-1"]


def test_a_ratio_needs_a_divisor_that_means_something() -> None:
    full = AlertRule("full", RuleKind.RATIO, "gpu", "memory_used_mib", bound=900, over="memory_mib", at_least=100)
    frame = gpus([0, 0, 0], memory_used_mib=[95, 9, 90], memory_mib=[100, 9, 100])
    assert Watch(full).see(frame) == ["+full node-1/gpu-0"]


def test_a_rate_is_what_came_in_its_time_and_ends_when_that_has_passed() -> None:
    failing = AlertRule("failing", RuleKind.RATE, "scheduler", "cycle_failures", bound=2, per_s=60, keep_s=0)
    watch = Watch(failing)
    told = [watch.see(scheduler(cycle_failures=count)) for count in (1, 0, 1, 0, 1, 0, 0, 0, 0, 0)]
    assert told == [[], [], [], [], ["+failing scheduler"], [], ["-failing scheduler"], [], [], []]


def test_a_rate_of_what_is_no_count_is_how_much_it_grew() -> None:
    growing = AlertRule("growing", RuleKind.RATE, "process", "memory_mib", bound=100, per_s=60, keep_s=0)
    watch = Watch(growing)

    def process(mib: int) -> Frame:
        return {SubjectKind.PROCESS: KindFrame(("kaiwo",), {"memory_mib": np.array([mib])})}

    told = [watch.see(process(mib)) for mib in (500, 520, 540, 560, 610, 615, 615, 615, 615, 615, 615, 615, 615)]
    assert told.index(["+growing kaiwo"]) == 4
    assert ["-growing kaiwo"] in told[5:]


def test_a_part_of_what_came_is_not_judged_while_little_came() -> None:
    failing = AlertRule(
        "failing", RuleKind.RATE, "scheduler", "cycle_failures", bound=500, over="cycles", at_least=10, per_s=600
    )
    watch = Watch(failing)
    assert watch.see(scheduler(cycle_failures=3, cycles=3)) == []
    assert watch.see(scheduler(cycle_failures=3, cycles=7)) == ["+failing scheduler"]


def test_an_absence_is_about_what_was_known_before() -> None:
    silent = AlertRule("silent", RuleKind.ABSENCE, "gpu", "temperature_c", for_s=20, keep_s=0)
    watch = Watch(silent)
    told = [watch.see(gpus([50, MISSING, 50]))]
    told += [watch.see(gpus([MISSING, MISSING, 50])) for _ in range(3)]
    told.append(watch.see(gpus([50, MISSING, 50])))
    assert told == [[], [], [], ["+silent node-1/gpu-0"], ["-silent node-1/gpu-0"]]


def test_an_anomaly_is_far_from_its_own_past_and_does_not_become_the_usual() -> None:
    odd = AlertRule("odd", RuleKind.ANOMALY, "gpu", "temperature_c", bound=8000, history_s=86_400, keep_s=10)
    watch, draw = Watch(odd), np.random.default_rng(3)

    def heat(first: int = 0) -> list[int]:
        usual = draw.integers(38, 43, 3) + np.array([0, 30, 50])
        return [first or int(usual[0]), int(usual[1]), int(usual[2])]

    for _ in range(200):
        assert watch.see(gpus(heat())) == []
    assert watch.see(gpus(heat(70))) == ["+odd node-1/gpu-0"], "70 is usual for the second one, not for this one"
    for _ in range(60):
        assert watch.see(gpus(heat(70))) == []
    told = [line for _ in range(5) for line in watch.see(gpus(heat()))]
    assert told == ["-odd node-1/gpu-0"]


def test_the_past_of_a_subject_follows_its_name_when_others_come_and_go() -> None:
    failing = AlertRule("full", RuleKind.RATE, "gpu", "memory_used_mib", bound=50, per_s=600)
    watch = Watch(failing)
    watch.see(gpus([0, 0, 0], memory_used_mib=[10, 500, 900]))
    watch.see(gpus([0, 0], names=(GPUS[2], GPUS[0]), memory_used_mib=[900, 10]))
    frame = gpus([0, 0, 0], names=(GPUS[2], GPUS[0], "new"), memory_used_mib=[900, 90, 900])
    watch.see(frame)
    assert watch.see(frame, step_s=30) == []
    assert set(watch.memory.alerts) == {("full", GPUS[0])}


def test_a_rule_that_holds_only_while_another_condition_does() -> None:
    stalled = AlertRule(
        "stalled", RuleKind.THRESHOLD, "scheduler", "stalled_s", bound=60, keep_s=0,
        only_while=(RuleCondition("idle_gpu_milli", Side.ABOVE, 0),),
    )  # fmt: skip
    watch = Watch(stalled)
    assert watch.see(scheduler(stalled_s=90, idle_gpu_milli=0)) == []
    assert watch.see(scheduler(stalled_s=90, idle_gpu_milli=500)) == ["+stalled scheduler"]
    assert watch.see(scheduler(stalled_s=90, idle_gpu_milli=0)) == ["-stalled scheduler"]


def test_patterns_choose_the_subjects() -> None:
    watch = Watch(AlertRule("hot", RuleKind.THRESHOLD, "gpu", "temperature_c", bound=90, subjects=("node-1/*",)))
    assert watch.see(gpus([50, 99, 99])) == ["+hot node-1/gpu-1"]


def test_a_consequence_is_kept_quiet_while_its_cause_fires_on_the_same_node() -> None:
    idle = AlertRule("idle", RuleKind.THRESHOLD, "gpu", "power_w", Side.BELOW, 50, keep_s=0)
    hot = AlertRule("hot", RuleKind.THRESHOLD, "gpu", "temperature_c", bound=90, keep_s=0)
    watch = Watch(idle, hot, inhibit=[Inhibition(("hot",), ("idle",), "node")])
    told = watch.see(gpus([99, 50, 50], power_w=[100, 10, 10]))
    assert sorted(told) == ["+hot node-1/gpu-0", "+idle node-2/gpu-0"]
    assert watch.alert("idle", "node-1/gpu-1").quiet == "hot fires"
    told = watch.see(gpus([50, 50, 50], power_w=[100, 10, 10]))
    assert sorted(told) == ["+idle node-1/gpu-1", "-hot node-1/gpu-0"], "it is told once the cause is over"


def test_a_silence_tells_nobody_and_ends() -> None:
    watch = Watch(HOT)
    watch.silences = [Silence(7, "h*", "node-1/*", watch.now_s + 45)]
    told = [watch.see(gpus([95, 50, 95])) for _ in range(3)]
    assert told == [[], [], ["+hot node-2/gpu-0"]]
    assert watch.alert("hot", GPUS[0]).quiet == "silence 7"
    assert [watch.see(gpus([95, 50, 95])) for _ in range(2)] == [[], ["+hot node-1/gpu-0"]]


def test_what_nobody_was_told_of_is_not_told_to_be_resolved() -> None:
    watch = Watch(HOT)
    watch.silences = [Silence(1, "hot", "*", watch.now_s + 10_000)]
    told = [line for heat in (95, 95, 95, 50, 50, 50, 50) for line in watch.see(gpus([heat, 50, 50]))]
    assert told == []
    assert watch.memory.alerts == {}


def test_after_a_gap_what_fired_goes_on_and_what_was_pending_begins_anew() -> None:
    watch = Watch(HOT)
    for _ in range(3):
        watch.see(gpus([95, 50, 50]))
    watch.see(gpus([95, 50, 95]))
    fired_s = watch.alert("hot", GPUS[0]).fired_s
    assert watch.see(gpus([95, 50, 95]), step_s=3600) == []
    assert watch.alert("hot", GPUS[0]).fired_s == fired_s
    assert watch.alert("hot", GPUS[2]).since_s == watch.now_s


def test_an_alert_ends_with_its_rule() -> None:
    watch = Watch(HOT)
    for _ in range(3):
        watch.see(gpus([95, 50, 50]))
    watch.rules = RuleSet(())
    assert watch.see(gpus([95, 50, 50])) == ["-hot node-1/gpu-0"]


def test_the_summary_says_what_was_seen() -> None:
    watch = Watch(AlertRule("hot", RuleKind.THRESHOLD, "gpu", "temperature_c", bound=90, summary="{subject}: {value}"))
    watch.see(gpus([95, 50, 50]))
    assert watch.alert("hot", GPUS[0]).summary == "node-1/gpu-0: 95 °C"


@pytest.mark.parametrize("back_s", [100, 100_000])
def test_a_clock_that_is_set_back_loses_no_alert_and_makes_none(back_s: int) -> None:
    rate = AlertRule("rate", RuleKind.RATE, "gpu", "power_w", bound=10**6, per_s=600)
    watch = Watch(HOT, rate)
    for _ in range(3):
        watch.see(gpus([95, 50, 50], power_w=[1, 1, 1]))
    assert watch.see(gpus([95, 50, 50], power_w=[1, 1, 1]), step_s=-back_s) == []
    assert set(watch.memory.alerts) == {("hot", GPUS[0])}


def test_the_same_input_gives_the_same_answer_and_is_left_as_it_was() -> None:
    watch = Watch(HOT, AlertRule("odd", RuleKind.ANOMALY, "gpu", "temperature_c", bound=8000, history_s=600))
    for _ in range(3):
        watch.see(gpus([95, 50, 50]))
    before = watch.memory
    one, other = (evaluate(watch.rules, before, gpus([50, 50, 99]), watch.now_s + 10) for _ in range(2))
    assert one.changed == other.changed
    assert one.memory.alerts == other.memory.alerts
    assert set(before.alerts) == {("hot", GPUS[0])}
