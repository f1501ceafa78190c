"""Built-in plugins around a start that an administrator switches on: a rate, chosen domains, counts."""

from collections import Counter, deque

import msgspec

from kaiwo.plugins.edge_contract import ALLOWED, Metric, MonitoringSample, StartPlacement, Verdict

MINUTE_S = 60


class StartRateConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pods_per_minute: int = 600
    closed_queues: tuple[str, ...] = ()  # whose work does not start at all

    def __post_init__(self) -> None:
        if self.pods_per_minute < 1:
            raise ValueError(f"podsPerMinute is {self.pods_per_minute}; write at least 1")


class StartRate:
    """Start at most so many pods a minute, so that image registries and file systems can follow.

    `reserve` takes a place in the current minute for each pod; what another plugin refuses gives it back. `permit`
    refuses the work of closed queues. A gang that is larger than the rate starts alone.
    """

    name, version = "start-rate", "1"
    Config = StartRateConfig

    def __init__(self, config: StartRateConfig = StartRateConfig()) -> None:  # noqa: B008
        self._config = config
        self._recent: deque[tuple[int, str, int]] = deque()  # when, workload, pods

    def reserve(self, placements: tuple[StartPlacement, ...], now_s: int) -> list[Verdict]:
        while self._recent and self._recent[0][0] + MINUTE_S <= now_s:
            self._recent.popleft()
        used, verdicts = sum(pods for _, _, pods in self._recent), []
        for placement in placements:
            pods = len(placement.pods)
            if used and used + pods > self._config.pods_per_minute:
                again_s = max(1, self._recent[0][0] + MINUTE_S - now_s)
                verdicts.append(Verdict(f"{used} pods have started within the last minute", again_s))
            else:
                used += pods
                self._recent.append((now_s, placement.workload, pods))
                verdicts.append(ALLOWED)
        return verdicts

    def unreserve(self, placements: tuple[StartPlacement, ...]) -> None:
        refused = {placement.workload for placement in placements}
        last_s = self._recent[-1][0] if self._recent else 0
        self._recent = deque(each for each in self._recent if each[0] != last_s or each[1] not in refused)

    def permit(self, placements: tuple[StartPlacement, ...], now_s: int) -> list[Verdict]:
        closed = self._config.closed_queues
        return [Verdict(f"queue '{each.queue}' is closed", 600) if each.queue in closed else ALLOWED
                for each in placements]  # fmt: skip


class ChosenDomains:
    """Tell pods which domains of the network were chosen for their workload: placement.kaiwo.ai/LEVEL."""

    name, version = "chosen-domains", "1"

    def bind(self, placements: tuple[StartPlacement, ...]) -> list[dict[str, str]]:
        return [
            {f"placement.kaiwo.ai/{level}": domain for level, domain in each.domains.items()} for each in placements
        ]


class StartCounts:
    """Count the pods that were started, by queue, as the metric `pods_started`."""

    name, version = "start-counts", "1"

    def __init__(self) -> None:
        self._pods: Counter[str] = Counter()

    def post_bind(self, placements: tuple[StartPlacement, ...], now_s: int) -> None:
        for each in placements:
            self._pods[each.queue] += len(each.pods)

    def metrics(self, sample: MonitoringSample) -> list[Metric]:
        return [Metric("pods_started", count, queue) for queue, count in sorted(self._pods.items())]


PLUGINS = (StartRate, ChosenDomains, StartCounts)
