"""Every hostile plugin in a running scheduler, while work comes and goes: what the journal says about it afterwards."""

import asyncio
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from kaiwo.model.plan import encode_plan
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.edge_contract import Notice
from kaiwo.runtime.loop.replay import ReplayResult, replay_range
from kaiwo.runtime.plugin_worker import plugin_set, worker_process
from kaiwo.runtime.plugin_worker.plugin_settings import DEADLINE_MS
from tests.plugins.sites import Site, job, node, running
from tests.plugins.strangers import hostile

WAVES, EACH, NODES = 8, 3, 6
# A plugin costs a cycle its deadline once, and longer only while other work keeps it from the processors.
BUDGET_MS = 400 + worker_process.MAX_LATE * DEADLINE_MS


def hostile_site(site: Site, kind: str) -> str:
    name = kind.replace("_", "-")
    folder = Path(site.plugin(name, Path(hostile.__file__).read_text()))
    manifest = next(folder.glob("*/kaiwo-plugin.toml"))
    manifest.write_text(manifest.read_text().replace(":Favourite", f":{kind}"))
    (site.home / "signing.key").write_text("secret")
    # It answers after 400 ms, again and again, which must be within its deadline for one answer.
    site.allow(name, **({"deadlineMs": 500} if kind == "eats_the_time_budget" else {}))
    return name


async def stream(site: Site, name: str) -> None:
    """Work arrives without a pause, ends, and nodes change; a wave does not wait for the one before."""
    plugins = site.load()
    assert plugins.status(name).state == "active", plugins.status(name).detail
    nodes = [node(f"node-{at}") for at in range(NODES)]
    async with running(plugins, site.home, nodes) as kaiwo:
        for wave in range(WAVES):
            names = [f"w{wave}-{at}" for at in range(EACH)]
            await kaiwo.cluster.work.submit([job(each, gpus=1 + at % 2) for at, each in enumerate(names)])
            await kaiwo.cluster.nodes.cordon("node-5", wave % 2 == 0)
            await asyncio.sleep(0.02)
        everything = [f"w{wave}-{at}" for wave in range(WAVES) for at in range(EACH)]
        await kaiwo.until(lambda: kaiwo.has_started(*everything))
        await kaiwo.until(lambda: plugins.status(name).state == "set-aside")
        assert kaiwo.loop.health.failures == 0
        # The scheduler goes on without it.
        await kaiwo.submit("afterwards")
        await kaiwo.until(lambda: kaiwo.has_started("afterwards"))
    status = plugins.status(name)
    assert status.faults == 1
    assert re.search(hostile.KINDS[name.replace("-", "_")].words, status.last_fault), status.last_fault


def journaled(site: Site) -> list[ReplayResult]:
    return list(replay_range(str(site.home), 0, 10**9, builtin_registry()))


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", hostile.KINDS)
def test_a_running_scheduler_survives_it(kind: str, site: Site) -> None:
    name = hostile_site(site, kind)
    asyncio.run(stream(site, name))
    cycles = journaled(site)
    noted = [each for each in cycles if any(note.subject == name for note in each.then.notes)]
    assert 1 <= len(noted) <= 2  # the next cycle may begin before the plugin is taken out
    for each in noted:
        assert dict(each.setting.plugins)[name].startswith("1.0+")
        assert [note.subject for note in each.then.notes] == [name]
        plans = [encode_plan(replace(plan, notes=(), rules="")) for plan in (each.then, each.now)]
        assert plans[0] == plans[1], "the plan is not the one without the plugin"
    after = [each for each in cycles if each.head.number > noted[-1].head.number]
    assert after
    assert all(each.is_same and name not in dict(each.setting.plugins) for each in after)
    if kind != "eats_the_time_budget":
        assert max(each.head.took_us for each in cycles) < BUDGET_MS * 1000


COMPUTES_ON = """
import numpy as np
class Favourite:
    name, version = "{name}", "1"
    def notification(self, notice):
        import sys
        frame = sys._getframe()
        while "_tables" not in getattr(frame.f_locals.get("self"), "__dict__", {}):
            frame = frame.f_back
        frame.f_locals["self"]._reply("thank you")
        while True:
            pass
"""


@pytest.mark.timeout(120)
def test_who_computes_while_nobody_asks_is_set_aside(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answered in time, and the next question may come in a day: until then it takes a processor."""
    monkeypatch.setattr(plugin_set, "LOOK_S", 0.3)
    monkeypatch.setattr(worker_process, "UNASKED_MS", 50)
    site.plugin("miner", COMPUTES_ON, kinds='["notification"]')
    plugins = site.allow("miner").load()

    async def one_notice() -> None:
        async with running(plugins, site.home) as kaiwo:
            kaiwo.edge.notifications.add(Notice("workload-failed", "default/a", 7))
            await kaiwo.until(lambda: plugins.status("miner").calls == 1)
            await kaiwo.until(lambda: plugins.status("miner").state == "set-aside")

    asyncio.run(one_notice())
    words = r"computed for \d+ ms while nobody asked it"
    assert re.fullmatch(words, plugins.status("miner").last_fault), plugins.status("miner")


@pytest.mark.timeout(120)
def test_who_waits_for_questions_stays(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_set, "LOOK_S", 0.05)
    site.plugin("favourite")
    plugins = site.allow("favourite").load()

    async def some_work() -> None:
        async with running(plugins, site.home) as kaiwo:
            for number in range(10):
                await kaiwo.submit(f"w{number}")
                await kaiwo.until(lambda number=number: kaiwo.has_started(f"w{number}"))
                await asyncio.sleep(0.1)

    asyncio.run(some_work())
    assert (plugins.status("favourite").state, plugins.status("favourite").faults) == ("active", 0)
