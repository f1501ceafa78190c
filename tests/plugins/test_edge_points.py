"""Plugins around a start: they reserve, permit, delay, refuse and annotate, and no decision is lost."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kaiwo.explain.obstacle_sentences import sentence
from kaiwo.model.events import NominationChanged, PodGone, StartRefused
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import Nomination, Plan, Start
from kaiwo.plugins.builtin.start_control import StartRate, StartRateConfig
from kaiwo.plugins.edge_contract import ALLOWED, PodPlace, StartPlacement, Verdict
from kaiwo.runtime.edge_points.plugin_start_gate import wrong_annotations
from kaiwo.runtime.loop.replay import replay
from kaiwo.runtime.loop.start_gate import GateAnswer, PluginRefusal, checked_plan, refusal_events
from tests.plugins.sites import Running, Site, running

GATE = """
from kaiwo.plugins import ALLOWED, Verdict
class Favourite:
    name, version = "gate", "1"
    def __init__(self):
        self.asked = 0
    def permit(self, placements, now_s):
        return [self.verdict(each, now_s) for each in placements]
    def verdict(self, each, now_s):
        if each.workload == "default/blocked":
            return Verdict("the licence server is full", 30)
        return ALLOWED
"""


def play(site: Site, story: Any, **more: Any) -> None:
    async def whole() -> None:
        async with running(site.load(), site.home, **more) as kaiwo:
            await story(kaiwo)

    asyncio.run(whole())


def sentences(kaiwo: Running, name: str) -> list[str]:
    return [sentence(each) for each in kaiwo.loop.state.backlog.gated.get(f"default/{name}", ())]


@pytest.mark.parametrize("run", ["confined", "trusted"])
def test_a_refused_start_waits_with_the_reason_and_others_take_its_place(site: Site, run: str) -> None:
    site.plugin("gate", GATE, kinds='["permit"]')
    site.allow("gate", run=run)

    async def story(kaiwo: Running) -> None:
        await kaiwo.submit("blocked", gpus=8, pods=2)
        await kaiwo.until(lambda: sentences(kaiwo, "blocked"))
        (text,) = sentences(kaiwo, "blocked")
        assert "plugin gate does not let it start before" in text
        assert text.endswith(": the licence server is full")
        await kaiwo.submit("other", gpus=8, pods=2)  # all GPUs are free for it
        await kaiwo.until(lambda: kaiwo.has_started("other"))
        assert not kaiwo.has_started("blocked")
        assert kaiwo.plugins.status("gate").state == "active"
        assert kaiwo.plugins.status("gate").calls >= 2

    play(site, story)


def test_a_delayed_start_is_tried_again_by_itself(site: Site) -> None:
    late = GATE.replace('if each.workload == "default/blocked"', "if now_s < 40")
    site.plugin("gate", late, kinds='["permit"]')
    site.allow("gate")

    async def story(kaiwo: Running) -> None:
        await kaiwo.submit("patient")
        await kaiwo.until(lambda: sentences(kaiwo, "patient"))
        kaiwo.cluster.advance(31)
        await kaiwo.until(lambda: kaiwo.loop.state.refused_starts.get("default/patient", START).until_s > 32)
        kaiwo.cluster.advance(31)
        await kaiwo.until(lambda: kaiwo.has_started("patient"))
        assert not kaiwo.loop.state.refused_starts

    play(site, story)


START = StartRefused("", "", "", 0)


def test_every_cycle_of_a_story_with_refusals_replays_to_the_same_plan(site: Site) -> None:
    site.plugin("gate", GATE, kinds='["permit"]')
    site.allow("gate")
    last = 0

    async def story(kaiwo: Running) -> None:
        nonlocal last
        await kaiwo.submit("blocked", gpus=8, pods=2)
        await kaiwo.until(lambda: sentences(kaiwo, "blocked"))
        await kaiwo.submit("small", "other")
        await kaiwo.until(lambda: kaiwo.has_started("small", "other"))
        kaiwo.cluster.advance(31)
        await kaiwo.until(lambda: kaiwo.loop.state.refused_starts["default/blocked"].until_s < 31)
        assert kaiwo.loop.last_cycle is not None
        last = kaiwo.loop.last_cycle.number

    play(site, story)
    assert last >= 2
    for number in range(1, last + 1):
        result = replay(str(site.home), number)
        assert result.now == result.then


def test_a_refusal_takes_back_what_the_plan_assumed() -> None:
    kept = Nomination("a/gang", "main-0", "node-0")
    plan = Plan(starts=(Start("a/gang", "main-0", "node-0"), Start("a/other", "main-0", "node-1")))
    answer = GateAnswer({"a/gang": PluginRefusal("gate", "not now", 5)}, {"a/other": {"example.com/seat": "7"}})
    events = refusal_events(plan, answer, (kept,), 100)
    gate = StartRefused("a/gang", "gate", "not now", 105)
    assert events == [PodGone("a/gang", "main-0"), NominationChanged(kept), gate]
    (left,) = checked_plan(plan, answer).starts
    assert (left.workload, left.annotations) == ("a/other", (("example.com/seat", "7"),))


RESERVES = """
from kaiwo.plugins import ALLOWED, Metric
class Favourite:
    name, version = "seats", "1"
    def __init__(self):
        self.held, self.started = set(), 0
    def reserve(self, placements, now_s):
        self.held |= {each.workload for each in placements}
        return [ALLOWED for _ in placements]
    def unreserve(self, placements):
        self.held -= {each.workload for each in placements}
    def post_bind(self, placements, now_s):
        self.started += len(placements)
    def metrics(self, sample):
        return [Metric("held", len(self.held)), Metric("started", self.started)]
"""


def test_who_reserved_is_told_what_does_not_start(site: Site) -> None:
    site.plugin("seats", RESERVES, kinds='["reserve", "post_bind", "metrics"]')
    site.plugin("gate", GATE, kinds='["permit"]')
    site.allow("seats").allow("gate")

    async def story(kaiwo: Running) -> None:
        await kaiwo.submit("blocked", "good")
        await kaiwo.until(lambda: kaiwo.has_started("good"))
        await kaiwo.until(
            lambda: any(each.name == "started" and each.value for each in kaiwo.edge.metrics.get("seats", ()))
        )
        told = {each.name: each.value for each in kaiwo.edge.metrics["seats"]}
        assert told == {"held": 1, "started": 1}

    play(site, story)


def places(*pods: int, queue: str = "lab") -> tuple[StartPlacement, ...]:
    made = (tuple(PodPlace(f"main-{at}", "node-0") for at in range(count)) for count in pods)
    return tuple(StartPlacement(f"a/w{at}", queue, "ada", pods) for at, pods in enumerate(made))


def test_the_rate_of_starts_holds_and_lets_a_large_gang_pass_alone() -> None:
    rate = StartRate(StartRateConfig(pods_per_minute=4))
    assert rate.reserve(places(3, 2), 100) == [ALLOWED, Verdict("3 pods have started within the last minute", 60)]
    assert rate.reserve(places(1), 130) == [ALLOWED]
    assert rate.reserve(places(1), 150) == [Verdict("4 pods have started within the last minute", 10)]
    assert rate.reserve(places(9), 191) == [ALLOWED]
    rate.unreserve(places(9))
    assert rate.reserve(places(4), 192) == [ALLOWED]
    closed = StartRate(StartRateConfig(closed_queues=("lab",)))
    assert [each.is_allowed for each in closed.permit((*places(1), *places(1, queue="open")), 0)] == [False, True]


def test_a_built_in_is_switched_on_by_its_name_alone(site: Site) -> None:
    site.allow("start-rate", config={"podsPerMinute": 2})

    async def story(kaiwo: Running) -> None:
        status = kaiwo.plugins.status("start-rate")
        assert (status.state, status.run, status.source) == ("active", "built-in", "Kaiwo")
        await kaiwo.submit("a", "b", "c")
        await kaiwo.until(lambda: kaiwo.loop.state.refused_starts and kaiwo.has_started("a", "b"))
        assert not kaiwo.has_started("c")
        kaiwo.cluster.advance(61)
        await kaiwo.until(lambda: kaiwo.has_started("c"))
        assert (await kaiwo.plugins.disable("start-rate", kaiwo.loop.ask)).state == "disabled"
        await kaiwo.submit("d", "e", "f")
        await kaiwo.until(lambda: kaiwo.has_started("d", "e", "f"))

    play(site, story)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"config": {"podsPerMinute": 0}}, "write at least 1"),
        ({"config": {"pods": 1}}, "unknown field `pods`"),
        ({"sha256": "0" * 64}, "leave out its path and its sha256"),
    ],
)
def test_a_built_in_with_a_wrong_setting_is_refused(site: Site, fields: dict[str, Any], words: str) -> None:
    status = site.allow("start-rate", **fields).load().status("start-rate")
    assert status.state == "refused"
    assert words in status.detail


def test_without_a_file_the_built_ins_of_the_edge_are_off(tmp_path: Path) -> None:
    from kaiwo.runtime.plugin_worker.plugin_set import PluginSet

    plugins = PluginSet(str(tmp_path))
    assert plugins.status("start-rate").state == "disabled"
    assert plugins.active_at("permit") == []
    plugins.close()


def test_the_obstacle_has_its_own_code() -> None:
    assert Reason("start-not-permitted") is Reason.NOT_PERMITTED


@pytest.mark.parametrize("how", ["disable", "set aside"])
def test_who_was_refused_goes_on_when_the_plugin_no_longer_takes_part(site: Site, how: str) -> None:
    site.plugin("gate", GATE.replace("30)", "80_000)"), kinds='["permit"]')
    site.allow("gate")

    async def story(kaiwo: Running) -> None:
        await kaiwo.submit("blocked")
        await kaiwo.until(lambda: sentences(kaiwo, "blocked"))
        if how == "disable":
            await kaiwo.plugins.disable("gate", kaiwo.loop.ask)
        else:
            await kaiwo.edge.calls.set_aside("gate", "it is of no use")
        await kaiwo.until(lambda: kaiwo.has_started("blocked"))
        assert kaiwo.plugins.status("gate").grade  # what it was confined by is still shown

    play(site, story)


SLOW_GATE = GATE.replace(
    "        return [self.verdict",
    "        import time\n        time.sleep(0.5)\n        return [self.verdict",
)


@pytest.mark.parametrize("action", ["disable", "reload"])
def test_a_plugin_that_is_stopped_while_it_is_asked_costs_no_start_and_is_not_blamed(site: Site, action: str) -> None:
    site.plugin("gate", SLOW_GATE, kinds='["permit"]')
    site.allow("gate", deadlineMs=5_000)

    async def story(kaiwo: Running) -> None:
        await kaiwo.submit("first")
        await asyncio.sleep(0.1)  # the permit is being asked
        await getattr(kaiwo.plugins, action)("gate", kaiwo.loop.ask)
        await kaiwo.until(lambda: kaiwo.has_started("first"))
        await kaiwo.submit("second")
        await kaiwo.until(lambda: kaiwo.has_started("second"))
        status = kaiwo.plugins.status("gate")
        assert (status.state, status.faults) == ("disabled" if action == "disable" else "active", 0), status.detail

    play(site, story)


def test_keys_of_kaiwo_are_for_its_own_plugins() -> None:
    given = [{"placement.kaiwo.ai/rack": "rack-1"}]
    assert wrong_annotations(given, 1, is_own=True) == ""
    assert "not for plugins" in wrong_annotations(given, 1, is_own=False)
    assert "expected one such as" in wrong_annotations([{"example.com/a\n": "1"}], 1, is_own=False)
