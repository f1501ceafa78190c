"""Add up what workloads used of their GPUs, from the samples of their devices.

A device counts where an agent measured it and one workload alone holds what is held of it: of what several tenants use
together, nobody knows whose it was.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kaiwo.clusters.plan_checks import is_up
from kaiwo.history.past.happenings import LifeKey
from kaiwo.history.past.past_writer import Use
from kaiwo.history.series.integer_codec import MISSING
from kaiwo.history.series.measures import SubjectKind
from kaiwo.history.series.series_writer import Frame
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.workload import Pod

MOST_S = 300  # that one sample may stand for
FORGET_IDLE_S = 600  # without a measurement
IDLE_PERCENT = 5  # a GPU that is busier is not idle


class IdleHold(NamedTuple):
    """Running work with idle GPUs."""

    held_milli: int
    idle_milli: int
    since_s: int
    measured_s: int  # the last time that its GPUs were measured


class GpuUseMeter:
    def __init__(self) -> None:
        self._uses: dict[LifeKey, Use] = {}
        self.idle: dict[LifeKey, IdleHold] = {}  # as of the last sample
        self.measures = False  # whether anything was measured in it
        self._sampled_s = 0
        self._names: Sequence[str] = ()
        self._place_of: dict[str, int] = {}

    def is_due(self, frame: Frame) -> bool:
        """Whether anything was measured at all. Virtual GPUs cost nothing here."""
        return bool((frame[SubjectKind.GPU].values["utilisation_percent"] != MISSING).any())

    def add(
        self, frame: Frame, pods_of: Mapping[str, Mapping[str, Pod]], numbers: Mapping[str, int], now_s: int
    ) -> None:
        """`numbers`: of the lives of workloads, by name; work that is not among them is left out."""
        before_s, self._sampled_s = self._sampled_s, now_s
        self.measures = self.is_due(frame)
        # An agent that is silent for some minutes makes no work busy.
        self.idle = {key: hold for key, hold in self.idle.items() if now_s - hold.measured_s <= FORGET_IDLE_S}
        devices = frame[SubjectKind.GPU]
        if not numbers or not before_s:
            return
        if devices.names is not self._names:
            self._names, self._place_of = devices.names, {name: at for at, name in enumerate(devices.names)}
        busy, held = devices.values["utilisation_percent"].tolist(), devices.values["allocated_milli"].tolist()
        for name, pods in pods_of.items():
            number = numbers.get(name)
            if number is not None:
                self._add_work(LifeKey(name, number), list(filter(is_up, pods.values())), busy, held, (before_s, now_s))

    def _add_work(
        self, key: LifeKey, pods: Sequence[Pod], busy: Sequence[int], held: Sequence[int], span: tuple[int, int]
    ) -> None:
        before_s, now_s = span
        idle_milli, measured = 0, False
        for pod in pods:
            span_s = min(MOST_S, now_s - max(before_s, pod.since_s))
            for share in pod.devices if span_s > 0 else ():
                at = self._place_of.get(f"{pod.node}/{share.gpu}", -1)
                if at < 0 or busy[at] == MISSING or not share.milli or held[at] != share.milli:
                    continue
                measured = True
                idle_milli += share.milli if busy[at] <= IDLE_PERCENT else 0
                use = self._uses.setdefault(key, Use())
                use.known_milli_s += share.milli * span_s
                use.used_milli_s += min(share.milli, busy[at] * WHOLE_MILLI // 100) * span_s
        if idle_milli:
            began_s = max(before_s, min(pod.since_s for pod in pods))
            since_s = self.idle[key].since_s if key in self.idle else began_s
            held_milli = sum(share.milli for pod in pods for share in pod.devices)
            self.idle[key] = IdleHold(held_milli, idle_milli, since_s, now_s)
        elif measured:
            self.idle.pop(key, None)

    def take(self) -> dict[LifeKey, Use]:
        """What was added since the last time."""
        uses, self._uses = self._uses, {}
        return uses
