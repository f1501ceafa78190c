"""A real Prometheus scrapes a running Kaiwo with its token, evaluates the shipped rules, and answers the dashboards."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from kaiwo.devices.agent_messages import GpuSample, Hello, Sample
from kaiwo.devices.inventory import Inventory, PhysicalGpu, Telemetry
from scripts.dashboards import BOARDS, texts
from tests.api.prometheus_server import MISSING, PROGRAM, prometheus_of
from tests.api.test_alert_rules import every_rule
from tests.api.world import World, world
from tests.conftest import ROOT
from tests.waiting import run, until, until_answer

DASHBOARDS = ROOT / "deploy/grafana"
QUEUE = """kind: KaiwoQueue
metadata: {name: lab}
spec: {resources: {gpu: {quota: 4, limit: 14}}}
"""


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
def test_it_scrapes_kaiwo_and_the_recorded_series_have_values(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=2) as it:
            await it.submit("wide", gpus=8, simulate="1h")
            await it.until_state("wide", "running")
            async with prometheus_of(it, tmp_path) as prometheus:
                value = prometheus.values
                assert await until_answer(lambda: value("kaiwo_gpus"), bool, "the first scrape") == ["16"]
                found = await until_answer(lambda: value("kaiwo:gpu_allocation:ratio"), bool, "a recorded series")
                assert found == ["0.5"]
                assert await value('kaiwo_planned_starts_total{outcome="kept"}') == ["0"]
                assert await value("kaiwo_scheduling_seconds_count") == ["1"]
                groups = (await prometheus.ask("rules"))["groups"]
        loaded = [rule for group in groups for rule in group["rules"]]
        assert len(loaded) == len(every_rule())
        assert [rule["name"] for rule in loaded if rule["health"] != "ok" and rule.get("lastError")] == []

    run(story())


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
def test_every_query_of_the_dashboards_has_an_answer(tmp_path: Path) -> None:
    """Of a cluster that works: some runs, waits, is evicted and ends, and agents measure the GPUs."""

    async def story() -> None:
        async with world(tmp_path, nodes=2) as it:
            await it.post("/manifests", QUEUE)
            await _measure(it)
            async with prometheus_of(it, tmp_path) as prometheus:
                await _work(it)
                left = dict(queries())
                assert len(left) > 40
                submitted = count()

                async def unanswered() -> dict[str, str]:
                    if len(it.loop.state.backlog) < 4:  # not ever more on a busy machine
                        await it.submit(f"short-{next(submitted)}", gpus=1, queue="lab", simulate="1s")
                    for expr in list(left):
                        if any(value != "NaN" for value in await prometheus.values(filled_in(expr))):
                            del left[expr]
                    return left

                await until_answer(unanswered, lambda found: not found, "an answer to every query")
                for board in BOARDS:
                    for _, query in board.variables:
                        label = query.rpartition(", ")[2].rstrip(")")
                        assert "lab" in await prometheus.ask(f"label/{label}/values")

    run(story())


def test_the_dashboards_are_those_of_the_script() -> None:
    assert {path.name: path.read_text() for path in DASHBOARDS.glob("*.json")} == texts(), "run: make dashboards"


def test_panels_are_described_and_fill_their_rows() -> None:
    for board in BOARDS:
        panels = [panel for row in board.rows for panel in row.panels]
        assert len({panel.title for panel in panels}) == len(panels)
        assert all(panel.help.endswith(".") for panel in panels)
        for row in board.rows:
            widths = [panel.width for panel in row.panels]
            assert sum(widths) % 24 == 0, f"{board.title}, {row.title}"


def queries() -> Iterator[tuple[str, str]]:
    """Of the files that are shipped: each expression with the panel that asks it."""
    for path in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                yield target["expr"], f"{path.stem}: {panel['title']}"


def filled_in(expr: str) -> str:
    """With the variables as Grafana fills them in for a scrape interval of a second."""
    return expr.replace("$__rate_interval", "30s").replace("$queue", ".*")


async def _measure(it: World) -> None:
    gpus = tuple(PhysicalGpu(f"gpu-{at}", "amd", "MI300X", order=at, memory_mib=196_608) for at in range(8))
    telemetry = Telemetry(utilisation_percent=80, memory_used_mib=90_000, power_w=600, temperature_c=61)
    await it.context.agents.receive(Hello("node-0", "1", "", Inventory("node-0", gpus)))
    samples = tuple(GpuSample(gpu.id, telemetry) for gpu in gpus)
    await it.context.agents.receive(Sample("node-0", 1, 0.0, samples))
    await it.context.series.sample(it.cluster.now_s())


async def _work(it: World) -> None:
    """Two that fill the cluster, and a more important one, for which one of them is evicted."""
    for name in ("low", "lower"):
        await it.submit(name, gpus=8, simulate="1h")
        await it.until_state(name, "running")
    await it.submit("important", gpus=8, priority=1000, simulate="1h")
    await until(lambda: bool(it.loop.evicted), "an eviction")
