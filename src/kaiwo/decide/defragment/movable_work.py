"""Which running work may be moved now, and why the rest may not.

In:    one cycle's input.   Out: by workload, a reason or None, and what moving one of its pods would lose.
Work moves only if preemption could stop it: not while a disruption budget, a minimum run time or a plugin protects it.
One pod of a gang may move by itself: only it stops, and the others wait for it, as after the failure of a node.
"""

from collections.abc import Iterator, Sequence

from kaiwo.decide.cycle_state import CycleInput
from kaiwo.decide.make_room.victim_filters import victim_filters
from kaiwo.decide.make_room.victim_units import VictimUnit
from kaiwo.decide.planned_starts.waiting_time import protected_until_s
from kaiwo.model.defragmentation import KeptReason, KeptWork
from kaiwo.model.network.level_groups import levels_of
from kaiwo.model.workload import Phase, Pod, Workload, breaks_gang, lost_gpu_s
from kaiwo.snapshot.view import View


class MovableWork:
    def __init__(self, cycle: CycleInput, view: View) -> None:
        self._cycle, self._state = cycle, cycle.state
        self._min_run_s = view.queues.tree.min_runtime_s
        self._may_stop = victim_filters(view, cycle.plugins, cycle.policy)
        self._reasons: dict[str, KeptReason | None] = {}

    def reason(self, workload: Workload) -> KeptReason | None:
        """Why none of its pods may move; None: they may."""
        name = workload.name
        if name not in self._reasons:
            self._decide([workload])
        return self._reasons[name]

    def check_all(self) -> None:
        """Decide about all running work at once: asking the filters for each workload took half of a plan."""
        workloads = self._state.workloads
        self._decide([workloads[name] for name in self._state.pods if name in workloads and name not in self._reasons])

    def running(self, name: str) -> list[Pod]:
        pods = self._state.pods.get(name, {})
        return [pods[pod] for pod in sorted(pods) if pods[pod].phase is Phase.RUNNING]

    def pods(self) -> Iterator[Pod]:
        """Every pod that may move, by workload and name."""
        self.check_all()
        for name in sorted(self._state.pods):
            workload = self._state.workloads.get(name)
            if workload is not None and self.reason(workload) is None:
                yield from self.running(name)

    def kept(self) -> tuple[KeptWork, ...]:
        """The running work that may not move, the largest first."""
        found = []
        for name in sorted(self._state.pods):
            workload = self._state.workloads.get(name)
            reason = self.reason(workload) if workload is not None else None
            if reason is not None:
                milli = sum(share.milli for pod in self.running(name) for share in pod.devices)
                found.append(KeptWork(name, reason, milli))
        return tuple(sorted(found, key=lambda each: (-each.gpu_milli, each.workload)))

    def lost_gpu_s(self, workload: Workload, pod: Pod) -> int:
        """The work that is lost when one pod stops: that of the whole gang, if it cannot go on without this pod."""
        if workload.pods == 1:
            return lost_gpu_s(workload, [pod], self._cycle.now_s, self._cycle.policy.max_restart_cost_s)
        pods = [each for each in self.running(workload.name) if each.name != pod.name]
        stopped = [pod, *pods] if breaks_gang(workload, [each.name for each in pods]) else [pod]
        return lost_gpu_s(workload, stopped, self._cycle.now_s, self._cycle.policy.max_restart_cost_s)

    def _find_reason(self, workload: Workload) -> KeptReason | None:
        state, name = self._state, workload.name
        if not workload.preemptible:
            return KeptReason.NOT_PREEMPTIBLE
        if not workload.is_replaced:
            return KeptReason.NOT_REPLACED
        if not workload.may_go:
            return KeptReason.DISRUPTION_BUDGET
        if protected_until_s(state, name, self._cycle.policy) > self._cycle.now_s:
            return KeptReason.OVERDUE
        if name in state.failures.recoveries:
            return KeptReason.RECOVERING
        is_leaving = any(pod.phase not in (Phase.RUNNING, Phase.DONE) for pod in state.pods.get(name, {}).values())
        if name in state.nominations or is_leaving:
            return KeptReason.IN_TRANSIT
        if workload.reservation:
            return KeptReason.RESERVATION
        levels = levels_of(workload)
        if levels is not None and levels.bandwidth_mb_s:
            return KeptReason.BANDWIDTH
        return None

    def _decide(self, workloads: Sequence[Workload]) -> None:
        units: list[VictimUnit] = []
        for workload in workloads:
            pods = tuple(self.running(workload.name))
            self._reasons[workload.name] = reason = self._find_reason(workload) or self._too_young(workload, pods)
            if reason is None and pods and self._may_stop is not None:
                units.append(self._unit(workload, pods))
        if units and self._may_stop is not None:
            for unit, may in zip(units, self._may_stop(units).tolist(), strict=True):
                if not may:
                    self._reasons[unit.workload.name] = KeptReason.PROTECTED

    def _too_young(self, workload: Workload, pods: Sequence[Pod]) -> KeptReason | None:
        row = self._state.queues.row.get(workload.queue)
        if row is None or not pods:
            return None
        until_s = min(pod.since_s for pod in pods) + int(self._min_run_s[row])
        return KeptReason.PROTECTED if until_s > self._cycle.now_s else None

    def _unit(self, workload: Workload, pods: tuple[Pod, ...]) -> VictimUnit:
        since_s = min(pod.since_s for pod in pods)
        lost = lost_gpu_s(workload, pods, self._cycle.now_s, self._cycle.policy.max_restart_cost_s)
        milli = sum([share.charge_milli for pod in pods for share in pod.devices])
        charge = (milli, sum([pod.cpu_milli for pod in pods]), sum([pod.memory_mib for pod in pods]))
        return VictimUnit(workload, pods, False, since_s, lost, charge, ())
