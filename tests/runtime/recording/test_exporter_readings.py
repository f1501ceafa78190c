"""Kaiwo records what exporters of AMD and NVIDIA serve, where no agent reports; a process of its own reads them."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from kaiwo.devices.agent.prometheus_endpoint import MetricsServer
from kaiwo.devices.agent_messages import GpuSample, Hello, Sample
from kaiwo.devices.inventory import Inventory, PhysicalGpu, Telemetry
from kaiwo.history.series.measures import SubjectKind
from kaiwo.model.errors import ConfigError
from kaiwo.runtime.recording.exporter_readings import ExporterReadings, load_exporters
from kaiwo.telemetry.exporters.gpu_readings import GpuReading
from kaiwo.telemetry.exporters.scrape import NodeReading
from tests.api.world import World, world
from tests.telemetry.exporters.test_gpu_readings import AMD
from tests.waiting import run, until, until_answer


async def utilisation(it: World) -> dict[str, int]:
    frame = (await it.context.series.frame())[SubjectKind.GPU]
    return dict(zip(frame.names, frame.values["utilisation_percent"].tolist(), strict=True))


def children() -> list[int]:
    found = subprocess.run(
        ["ps", "-ww", "-o", "pid,args", "--ppid", str(os.getpid())], capture_output=True, text=True, check=True
    )
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "telemetry.exporters.scrape" in line]


def test_an_exporter_fills_in_what_no_agent_reports_also_after_its_reader_was_killed(tmp_path: Path) -> None:
    async def story() -> None:
        server = MetricsServer("127.0.0.1", 0, lambda: AMD, lambda: "")
        config = f"exporters:\n- {{url: 'http://127.0.0.1:{server.port}/metrics', nodes: [node-1]}}\neveryS: 1\n"
        (tmp_path / "exporters.yaml").write_text(config)
        async with world(tmp_path, exporters=str(tmp_path / "exporters.yaml")) as it:
            found = await until_answer(lambda: utilisation(it), lambda use: use["node-1/gpu-0"] == 87, "a scrape")
            assert found["node-1/gpu-1"] == 12
            assert found["node-1/gpu-2"] == found["node-0/gpu-0"] == -1
            gpu = PhysicalGpu("gpu-0", "amd", "MI300X", order=0, memory_mib=196_608)
            await it.context.agents.receive(Hello("node-1", "1", "", Inventory("node-1", (gpu,))))
            sample = GpuSample("gpu-0", Telemetry(utilisation_percent=3))
            await it.context.agents.receive(Sample("node-1", 1, 0.0, (sample,)))
            assert (await utilisation(it))["node-1/gpu-0"] == 3  # the agent knows better
            (before,) = children()
            os.kill(before, signal.SIGKILL)
            await until(lambda: children() not in ([], [before]), "it to be started again")
        await until(lambda: not children(), "it to end with Kaiwo")
        server.close()

    run(story())


def test_an_old_reading_counts_no_more(tmp_path: Path) -> None:
    now = [100.0]
    path = tmp_path / "exporters.yaml"
    path.write_text("exporters: [{url: 'http://{node}:9400/metrics', nodes: [a, b]}]\n")
    job = load_exporters(str(path))
    assert [target.url for target in job.targets] == ["http://a:9400/metrics", "http://b:9400/metrics"]
    readings = ExporterReadings(job, lambda: now[0])
    readings._take(NodeReading("a", (GpuReading(0, utilisation_percent=5),)))
    readings._take(NodeReading("stranger", (GpuReading(0, utilisation_percent=5),)))
    assert set(readings.of_nodes()) == {"a"}
    now[0] += 31
    assert readings.of_nodes() == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("exporters: [{url: 'ftp://a', nodes: [a]}]", "is not an address"),
        ("exporters: [{url: 'http://u:p@a/', nodes: [a]}]", "has a password in it"),
        ("exporters: [{url: 'http://a', nodes: [a]}, {url: 'http://b', nodes: [a]}]", "two exporters"),
        ("exporters: [{url: 'http://a', nodes: [a], tokenFile: x}]", "use https://"),
        ("exporters: [{url: 'http://a', node: a}]", "unknown field"),
        ("everyS: 0", "everyS must be"),
        (": [", "exporters.yaml"),
    ],
)
def test_a_wrong_file_is_refused_with_its_reason(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "exporters.yaml").write_text(text)
    with pytest.raises(ConfigError, match=why):
        load_exporters(str(tmp_path / "exporters.yaml"))
