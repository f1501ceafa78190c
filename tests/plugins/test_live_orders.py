"""Plugins that order workloads come, go and fail while Kaiwo runs: what waits is lined up again, and replays agree."""

import asyncio
import re
from typing import Any

import pytest
from msgspec.structs import replace

from kaiwo.model.plan import Note, encode_plan
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.runtime.loop.replay import replay_range
from tests.plugins.sites import Running, Site, node, running
from tests.worlds import World

LONGEST_NAME_FIRST = """
class Favourite:
    name, version = "{name}", "1.0"
    def workload_order(self, workload, policy):
        if "bad" in workload.name:
            MISBEHAVE
        return (-len(workload.name),)
"""


def site_with(site: Site, misbehave: str = "pass", **fields: Any) -> Site:
    site.plugin("longest", LONGEST_NAME_FIRST.replace("MISBEHAVE", misbehave), kinds='["workload_order"]')
    return site.allow("longest", **fields)


async def started(kaiwo: Running, *names: str) -> None:
    await kaiwo.until(lambda: kaiwo.has_started(*names))


async def make_room(kaiwo: Running, name: str) -> None:
    await kaiwo.cluster.work.remove((), [f"default/{name}"])


def check_replays(site: Site, registry: Any, cycles_at_least: int) -> list[Any]:
    found = list(replay_range(str(site.home), 0, 10**9, registry))
    assert len(found) >= cycles_at_least
    assert [(each.head.number, each.differences) for each in found if not each.is_same] == []
    return found


def test_it_is_disabled_enabled_and_reloaded_live_and_every_cycle_can_be_decided_again(site: Site) -> None:
    plugins = site_with(site).load()

    async def story() -> None:
        async with running(plugins, site.home, [node("node-0", gpus=1)]) as kaiwo:
            await kaiwo.submit("first")
            await started(kaiwo, "first")
            for name in ("b", "c-c", "d-d-d", "e-e-e-e", "f"):
                await kaiwo.submit(name)
            await make_room(kaiwo, "first")
            await started(kaiwo, "e-e-e-e")
            await plugins.disable("longest", kaiwo.loop.ask)
            await make_room(kaiwo, "e-e-e-e")
            await started(kaiwo, "b")  # the oldest
            await plugins.enable("longest", kaiwo.loop.ask)
            await make_room(kaiwo, "b")
            await started(kaiwo, "d-d-d")
            await plugins.reload("longest", kaiwo.loop.ask)
            await make_room(kaiwo, "d-d-d")
            await started(kaiwo, "c-c")

    asyncio.run(story())
    check_replays(site, plugins.registry, 5)


@pytest.mark.parametrize(
    ("misbehave", "words"),
    [
        ("raise RuntimeError('no')", "raised RuntimeError: no"),
        ("while True: pass", "did not answer within"),
        ("return (0.5,)", "was not expected|returned \\(float\\) but"),
    ],
)
@pytest.mark.parametrize("run", ["confined", "trusted"])
def test_one_that_fails_is_set_aside_and_all_that_waits_is_lined_up_without_it(
    misbehave: str, words: str, run: str, site: Site
) -> None:
    """Before, work that had arrived kept its place, what came later was last, and only a restart helped."""
    if run == "trusted" and "while" in misbehave:
        pytest.skip("nothing can stop a call inside the scheduler")
    plugins = site_with(site, misbehave, run=run).load()

    async def story() -> None:
        async with running(plugins, site.home, [node("node-0", gpus=1)]) as kaiwo:
            await kaiwo.submit("first")
            await started(kaiwo, "first")
            for name, priority in (("b", 90), ("c-c-c", 10), ("bad-one", 50)):
                await kaiwo.submit(name, priority=priority)
            await kaiwo.until(lambda: plugins.status("longest").state == "set-aside")
            await make_room(kaiwo, "first")
            await started(kaiwo, "b")
            await make_room(kaiwo, "b")
            await started(kaiwo, "bad-one")

    asyncio.run(story())
    cycles = check_replays(site, site.load().registry, 3)  # as `kaiwo replay --plugins` has it, from the beginning
    assert re.search(words, plugins.status("longest").last_fault)
    for each in cycles[2:]:  # in the first two nothing had failed; a cycle may come before the plugin is taken out
        notes = [(note.code, note.subject) for note in each.then.notes]
        assert notes == [("plugin-set-aside", "longest")] or "longest" not in dict(each.setting.plugins)
        assert encode_plan(replace(each.then, notes=(), rules="")) == encode_plan(replace(each.now, notes=(), rules=""))


class Failing:
    """It says that it equals every other, and has no hash."""

    name, version = "failing", "1"

    def __eq__(self, other: object) -> bool:
        return True

    def workload_order(self, workload: Any, policy: Any) -> Any:
        raise RuntimeError("no")


def test_a_runner_goes_on_with_the_orders_that_are_left() -> None:
    registry = builtin_registry()
    own = registry.plugins
    registry.replace_all((Failing(), *own))
    runner = CycleRunner(None, plugins=registry)
    world = (
        World(nodes=1, gpus_per_node=1).submit("low", gpus_each=1, priority=1).submit("high", gpus_each=1, priority=9)
    )
    runner.state.patch(world.state.events())
    decision = runner.cycle(now_s=0)
    assert decision is not None
    assert [start.workload for start in decision.plan.starts] == ["default/high"]
    assert decision.plan.notes == (Note("plugin-set-aside", "failing", "default/high: raised RuntimeError: no"),)
    registry.replace_all(own)
    assert runner.is_order_old is False
    registry.replace_all((Failing(), *own))
    assert runner.is_order_old, "another object gets another chance"
