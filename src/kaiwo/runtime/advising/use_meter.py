"""Measure the peaks of every run: GPU and GPU memory from node agents, CPU and memory from the cluster.

In:    the running pods, the last report of each agent, and what the cluster measures.   Out: a RunUse of what ended.
A run counts only if it was seen from its beginning, and an amount only if most samples knew it: half a run says nothing
about its peak. Peaks of processors are means of a minute; shorter bursts are kept beside them.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from kaiwo.advise.right_size import amounts_of
from kaiwo.advise.run_uses import UNKNOWN, PodAmounts, RunUse
from kaiwo.advise.size_work import device_mib
from kaiwo.clusters.plan_checks import is_up
from kaiwo.clusters.protocol import Cluster, PodUse
from kaiwo.devices.agent_messages import GpuSample
from kaiwo.history.past.happenings import LifeKey
from kaiwo.model.gpus.gpu import Share, without_uuid
from kaiwo.model.workload import Pod, Workload
from kaiwo.runtime.nodes.agent_registry import AgentRegistry
from kaiwo.snapshot.cluster_state import ClusterState

MINUTE_S = 60
KNOWN_PERCENT = 80  # of the samples
FEWEST_SAMPLES = 3
LATE_S = 90  # who was seen first this long after the start was not seen from its beginning
AMOUNTS = PodAmounts.__struct_fields__
RATES = ("gpu_milli", "cpu_milli")


class _Peak:
    """Of one amount of one run."""

    def __init__(self) -> None:
        self.known = self.peak = self.top = 0
        self._minute, self._sum, self._count = -1, 0, 0

    def add(self, value: int, at_s: int, is_rate: bool) -> None:
        self.known += 1
        self.top = max(self.top, value)
        if not is_rate:
            self.peak = self.top
            return
        if at_s // MINUTE_S != self._minute:
            self._minute, self._sum, self._count = at_s // MINUTE_S, 0, 0
        self._sum, self._count = self._sum + value, self._count + 1
        if self._count >= FEWEST_SAMPLES:
            self.peak = max(self.peak, self._sum // self._count)


class _Run:
    def __init__(self, workload: Workload, began_s: int) -> None:
        self.workload, self.began_s = workload, began_s
        self.samples = 0
        self.peaks = {name: _Peak() for name in AMOUNTS}

    def amount(self, name: str) -> int:
        peak = self.peaks[name]
        enough = peak.known >= FEWEST_SAMPLES and peak.known * 100 >= self.samples * KNOWN_PERCENT
        return peak.peak if enough else UNKNOWN


class WorkUseMeter:
    def __init__(self, cluster: Cluster, agents: AgentRegistry) -> None:
        self._cluster, self._agents = cluster, agents
        self._runs: dict[LifeKey, _Run] = {}

    def add(
        self, state: ClusterState, uses: Mapping[tuple[str, str], PodUse], numbers: Mapping[str, int], now_s: int
    ) -> None:
        """One sample of everything that runs. `numbers`: of the submissions, by workload."""
        for name, number in numbers.items():
            workload, pods = state.workloads.get(name), list(filter(is_up, state.pods.get(name, {}).values()))
            if workload is None or not pods:
                continue
            key, began_s = LifeKey(name, number), min(pod.since_s for pod in pods)
            run = self._runs.get(key)
            if run is None or run.began_s != began_s:  # it was started again: this is another run
                run = self._runs[key] = _Run(workload, began_s if now_s - began_s <= LATE_S else -1)
            run.samples += 1
            self._add_sample(state, run, pods, uses, now_s)

    def _add_sample(
        self, state: ClusterState, run: _Run, pods: list[Pod], uses: Mapping[tuple[str, str], PodUse], now_s: int
    ) -> None:
        """The most that any pod uses; unknown if any pod's use is."""
        found: dict[str, list[int | None]] = {name: [] for name in AMOUNTS}
        for pod in pods:
            use = uses.get((pod.workload, pod.name), PodUse())
            found["cpu_milli"].append(use.cpu_milli)
            found["memory_mib"].append(use.memory_mib)
            for share in pod.devices:
                busy, mib = self._device_use(state, pod, share)
                found["gpu_milli"].append(busy)
                found["gpu_mib"].append(mib)
        for name, values in found.items():
            known = [value for value in values if value is not None]
            if known and len(known) == len(values):
                run.peaks[name].add(max(known), now_s, name in RATES)

    def _device_use(self, state: ClusterState, pod: Pod, share: Share) -> tuple[int | None, int | None]:
        """How busy the pod keeps one of its devices, in thousandths of it, and its memory there."""
        agent, node = self._agents.of(pod.node), state.node_objects.get(pod.node)
        gpu = next((each for each in node.gpus if each.id == share.gpu), None) if node is not None else None
        if agent is None or agent.is_lost or gpu is None or gpu.parent:
            return None, None
        sample = agent.gpu(without_uuid(share.gpu)) or agent.gpu(share.gpu)
        if sample is None:
            return None, None
        if _is_alone(state, pod, share.gpu):
            return _milli(sample.telemetry.utilisation_percent), sample.telemetry.memory_used_mib
        return self._processes_use(pod, share, sample)

    def _processes_use(self, pod: Pod, share: Share, sample: GpuSample) -> tuple[int | None, int | None]:
        run, _ = self._cluster.abilities.devices.run_of(pod.workload, pod.name)
        devices = (share.gpu, without_uuid(share.gpu))
        mine = [each for each in sample.processes if run and each.owner == run and each.device in devices]
        if not mine:
            return None, None
        return _milli(_total(each.busy_percent for each in mine)), _total(each.memory_mib for each in mine)

    def take(
        self, key: LifeKey, asked: Workload, failed: bool, peak_mib: int, state: ClusterState, now_s: int
    ) -> RunUse | None:
        """What a run used, once it has ended; None: nobody saw all of it. `asked`: as its owner submitted it."""
        run = self._runs.pop(key, None)
        if run is None or run.began_s < 0:
            return None
        return _use_of(run, asked, state, peak_mib, max(1, now_s - run.began_s), failed)

    def so_far(self, key: LifeKey, asked: Workload, state: ClusterState) -> RunUse | None:
        """What a run has used that goes on."""
        run = self._runs.get(key)
        return None if run is None else _use_of(run, asked, state)

    def keep_only(self, keys: Iterable[LifeKey]) -> None:
        living = set(keys)
        self._runs = {key: run for key, run in self._runs.items() if key in living}


def _use_of(
    run: _Run, asked: Workload, state: ClusterState, peak_mib: int = 0, run_s: int = 1, failed: bool = False
) -> RunUse | None:
    if len(run.workload.roles) != 1 or len(asked.roles) != 1:
        return None  # nobody knows which role used it
    given, wanted = run.workload.roles[0].request, asked.roles[0].request
    size = device_mib(state, wanted)
    peak = PodAmounts(*(run.amount(name) for name in AMOUNTS))
    if peak_mib:  # the kernel saw more than the samples
        peak = replace(peak, memory_mib=max(peak_mib, peak.memory_mib))
    top = run.peaks["gpu_milli"].top if peak.gpu_milli != UNKNOWN else UNKNOWN
    return RunUse(peak, amounts_of(given, size), amounts_of(wanted, size), run_s, top, failed)


def _is_alone(state: ClusterState, pod: Pod, gpu: str) -> bool:
    others = state.allocations_on.get(pod.node, {}).values()
    return not any(
        isinstance(each, Pod) and (each.workload, each.name) != (pod.workload, pod.name)
        and any(share.gpu == gpu for share in each.devices)
        for each in others
    )  # fmt: skip


def _milli(percent: int | None) -> int | None:
    return None if percent is None else min(1000, percent * 10)


def _total(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(each for each in known if each is not None)
