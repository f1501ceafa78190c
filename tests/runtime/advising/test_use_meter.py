"""Peaks of runs, from samples of agents and of the cluster."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from kaiwo.advise.run_uses import UNKNOWN, PodAmounts, RunUse
from kaiwo.clusters.protocol import PodRun, PodUse
from kaiwo.devices.agent_messages import GpuSample, ProcessUse
from kaiwo.devices.inventory import Telemetry
from kaiwo.history.past.happenings import LifeKey
from kaiwo.runtime.advising.use_meter import WorkUseMeter
from tests.worlds import World

POD, KEY = ("default/train", "main-0"), LifeKey("default/train", 1)


class Agents:
    """The last samples of a node's GPUs."""

    def __init__(self) -> None:
        self.samples: dict[str, GpuSample] = {}

    def of(self, node: str) -> Any:
        return SimpleNamespace(is_lost=False, gpu=self.samples.get)


class Story:
    def __init__(self, **request: Any) -> None:
        self.world = World(nodes=1, gpus_per_node=1)
        self.world.submit("train", cpu_milli=4000, **request).settle()
        self.agents = Agents()
        runs = SimpleNamespace(run_of=lambda workload, pod: PodRun(workload))
        cluster = SimpleNamespace(abilities=SimpleNamespace(devices=runs))
        self.meter = WorkUseMeter(cluster, self.agents)  # type: ignore[arg-type]

    def sample(self, at_s: int, busy: int | None = None, mib: int = 0, cpu: int | None = None, **more: Any) -> None:
        if busy is not None:
            self.agents.samples = {"gpu-0": GpuSample("gpu-0", Telemetry(busy, mib), **more)}
        uses: Mapping[tuple[str, str], PodUse] = {POD: PodUse(cpu, 100)} if cpu is not None else {}
        self.meter.add(self.world.state, uses, {"default/train": 1}, at_s)

    def end(self, peak_mib: int = 0) -> RunUse | None:
        asked = self.world.state.workloads["default/train"]
        return self.meter.take(KEY, asked, False, peak_mib, self.world.state, 1000)


def test_the_peak_is_the_highest_mean_of_a_minute_and_bursts_are_kept_beside_it() -> None:
    story = Story(gpus_each=1)
    for at_s in range(0, 120, 10):
        story.sample(at_s, busy=100 if at_s == 30 else 20, mib=at_s, cpu=1000)
    use = story.end(peak_mib=250)
    assert use is not None
    assert use.peak == PodAmounts(400, 110, 1000, 250), "at 30 s the mean of the minute was (3 x 20 + 100) / 4 percent"
    assert (use.top_gpu_milli, use.run_s, use.is_adjusted) == (1000, 1000, False)


def test_a_run_that_was_seen_late_says_nothing() -> None:
    story = Story(gpus_each=1)
    story.sample(200, busy=20)
    assert story.end() is None


def test_an_amount_that_most_samples_did_not_know_is_unknown() -> None:
    story = Story(gpus_each=1)
    for at_s in range(0, 100, 10):
        story.sample(at_s, busy=20, mib=5, cpu=1000 if at_s < 60 else None)
    use = story.end()
    assert use is not None
    assert (use.peak.gpu_milli, use.peak.cpu_milli, use.peak.memory_mib) == (200, UNKNOWN, UNKNOWN)


def test_on_a_shared_gpu_its_own_processes_count() -> None:
    story = Story(fraction_milli=500)
    story.world.submit("other", fraction_milli=500).settle()
    mine, others = ProcessUse(1, "gpu-0", 700, 25, owner="default/train"), ProcessUse(2, "gpu-0", 900, 60)
    for at_s in range(0, 60, 10):
        story.sample(at_s, busy=85, mib=1600, processes=(mine, others))
    use = story.end()
    assert use is not None
    assert (use.peak.gpu_milli, use.peak.gpu_mib) == (250, 700)


def test_on_a_shared_gpu_whose_processes_nobody_tells_nothing_is_known() -> None:
    story = Story(fraction_milli=500)
    story.world.submit("other", fraction_milli=500).settle()
    for at_s in range(0, 60, 10):
        story.sample(at_s, busy=85, mib=1600)
    use = story.end()
    assert use is not None
    assert (use.peak.gpu_milli, use.peak.gpu_mib) == (UNKNOWN, UNKNOWN)


def test_a_second_attempt_is_another_run() -> None:
    story = Story(gpus_each=1)
    for at_s in range(0, 60, 10):
        story.sample(at_s, busy=90)
    (pod,) = story.world.state.pods["default/train"].values()
    story.world.finish("train")
    story.world.now_s = 500
    story.world.submit("train", gpus_each=1, cpu_milli=4000).settle()
    assert pod.since_s == 0
    for at_s in range(500, 560, 10):
        story.sample(at_s, busy=10)
    use = story.end()
    assert use is not None
    assert use.peak.gpu_milli == 100
