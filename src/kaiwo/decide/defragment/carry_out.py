"""Carry out a defragmentation run, a few moves in each cycle.

In:    the run and its progress in the cluster state.   Out: evictions and nominations, and the progress that they mean.
Never: stops a pod for which no place is kept, or a step of which any place is gone.

A pod stops only once its new place is free, and in the plan that keeps it for the pod. Where pods change places with
each other, all of them stop together. The waiting pods of a step get their places with its last moves. Everything is
checked again before it begins, because the run may be hours older than the cycle: what no longer fits is left out.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleInput, CycleState, PodKey, earliest_s, nomination_of
from kaiwo.decide.defragment.fixed_places import charge_at, keeps_levels, may_be_at, pod_at
from kaiwo.decide.defragment.movable_work import MovableWork
from kaiwo.decide.defragment.move_hours import begun_lately, next_open_s, rate_allows_s
from kaiwo.decide.make_room.room_state import EvictionBudget
from kaiwo.decide.placement.place_workload import place_workload
from kaiwo.model.defragmentation import (
    DefragmentationRun,
    KeptPlace,
    Move,
    MoveProgress,
    MoveState,
    MoveStep,
    RunState,
    SkipReason,
    StepProgress,
    begun_s,
)
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.plan import Eviction, EvictionCause, Nomination, Start
from kaiwo.model.workload import ACTIVE_PHASES, Phase, Pod, Workload, find_role
from kaiwo.snapshot.assumed_events import assumed_pod
from kaiwo.snapshot.backlog import needs_to_make_room_for

RETRY_S, MOST_TRIES = 30, 5  # after the cluster refused an eviction: a disruption budget may open
LOOK_AGAIN_S = 10  # while something protects a pod for a time that nobody knows
CLOCK_SKEW_S = 5  # between the scheduler and the API server
LONGEST_REPLACEMENT_S = 120  # after this, no controller is expected to make another pod
LONGEST_MOVE_S = 3600  # after this, the place of a pod that has not come back is given up


class MovesBegun(NamedTuple):
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    given_up: tuple[PodKey, ...] = ()
    progress: tuple[StepProgress, ...] = ()
    over: str = ""
    look_again_s: int = 0


def carry_out_moves(cycle: CycleInput, cycle_state: CycleState, is_busy: bool) -> MovesBegun:
    """`is_busy`: this cycle has decided to stop or start work before; then nothing begins in it."""
    run = cycle.state.defragmentation.run
    if run is None or run.is_over:
        return MovesBegun()
    action = _CarryOut(cycle, cycle_state, run)
    action.observe()
    if run.state is RunState.ABORTING:
        action.skip_all(SkipReason.ABORTED)
    elif is_busy:
        action.look_again(cycle.now_s + 1)
    else:
        action.begin()
    return action.result()


class _CarryOut:
    def __init__(self, cycle: CycleInput, cycle_state: CycleState, run: DefragmentationRun) -> None:
        self._cycle, self._cycle_state, self._state, self._run = cycle, cycle_state, cycle.state, run
        self._now_s, self._policy = cycle.now_s, cycle.policy
        self._before = list(cycle.state.defragmentation.steps())
        self._steps = list(self._before)
        self._evictions: list[Eviction] = []
        self._nominations: list[Nomination] = []
        self._given_up: list[PodKey] = []
        self._look_again_s = 0
        self._held: list[Nomination] = []  # for pods that are other workloads than those that stopped
        self._heirs = {each.heir for step in self._before for each in step.moves if each.heir}

    def observe(self) -> None:
        """See how the moves that were begun have gone."""
        for step, progress in zip(self._run.steps, self._before, strict=True):
            if any(each.state is MoveState.MOVING for each in progress.moves):
                pairs = zip(step.moves, progress.moves, strict=True)
                moves = tuple(self._seen(*pair) if pair[1].state is MoveState.MOVING else pair[1] for pair in pairs)
                self._put(replace(progress, moves=moves))

    def skip_all(self, reason: SkipReason) -> None:
        for progress in list(self._steps):
            if not progress.is_over:
                self._skip(progress, reason)

    def begin(self) -> None:
        """Begin what the hours, the rate and the state of the cluster allow, step by step."""
        if all(self._is_begun(progress) for progress in self._steps):
            return
        opens_s = next_open_s(self._policy.move_hours, self._now_s)
        if opens_s > self._now_s:
            self.look_again(opens_s)
            return
        self._movable = MovableWork(self._cycle, self._cycle_state.working.view)
        self._budget = EvictionBudget(self._state, self._now_s)
        # What there is once all that is leaving is gone, and all that this cycle begins.
        self._after = CycleState(self._cycle_state.snapshot, self._cycle)
        if self._after.working.has_releasing_pods:
            self._after.working.count_releasing(+1)
        for kept in self._held:
            self._after.working.hold(kept)
        for number, step in enumerate(self._run.steps):
            if not self._is_begun(self._steps[number]) and not self._advance(step, number):
                return

    def look_again(self, at_s: int) -> None:
        self._look_again_s = earliest_s(self._look_again_s, at_s)

    def result(self) -> MovesBegun:
        changed = tuple(now for now, then in zip(self._steps, self._before, strict=True) if now != then)
        is_over = all(progress.is_over for progress in self._steps)
        if any(each.state is MoveState.MOVING for progress in self._steps for each in progress.moves):
            self.look_again(self._now_s + LONGEST_MOVE_S)
        return MovesBegun(
            tuple(self._evictions),
            tuple(self._nominations),
            tuple(self._given_up),
            changed,
            self._run.name if is_over else "",
            0 if is_over else self._look_again_s,
        )

    @staticmethod
    def _is_begun(progress: StepProgress) -> bool:
        return not any(each.state is MoveState.WAITING for each in progress.moves)

    def _put(self, progress: StepProgress) -> None:
        self._steps[progress.number] = progress

    def _set(self, progress: StepProgress, number: int, move: MoveProgress) -> StepProgress:
        moves = (*progress.moves[:number], move, *progress.moves[number + 1 :])
        return replace(progress, moves=moves)

    def _skip(self, progress: StepProgress, reason: SkipReason) -> bool:
        """Make nothing more of a step. Always true: the next step may begin."""
        moves = tuple(
            replace(each, state=MoveState.KEPT, until_s=self._now_s) if each.state is MoveState.WAITING else each
            for each in progress.moves
        )
        if moves != progress.moves:
            self._put(replace(progress, moves=moves, reason=reason))
        return True

    def _seen(self, move: Move, progress: MoveProgress) -> MoveProgress:
        """What has become of a move that was begun."""
        if move.made_by and not progress.heir:
            return self._seen_replaced(move, progress)
        if progress.heir:
            move = replace(move, workload=progress.heir)
        workload = self._state.workloads.get(move.workload)
        pod = self._state.pods.get(move.workload, {}).get(move.pod)
        kept = self._state.nominations.get(move.workload, {}).get(move.pod)
        is_late = self._now_s >= progress.since_s + LONGEST_MOVE_S
        over = replace(progress, until_s=self._now_s)
        if workload is None or find_role(workload, move.pod) is None:
            return replace(over, state=MoveState.ENDED)
        if pod is None:
            if workload.held or is_late or (kept is None and not self._keep_again(move)):
                if kept is not None:
                    self._given_up.append((move.workload, move.pod))
                return replace(over, state=MoveState.UNPLACED)
            return progress
        if pod.phase is Phase.DONE:
            return replace(over, state=MoveState.MOVED)
        if pod.phase not in ACTIVE_PHASES or (pod.phase is Phase.ASSUMED and not is_late):
            return progress
        is_there = pod.node == move.node and _gpus(pod.devices) == _gpus(move.devices)
        if is_there or pod.node != move.source or pod.since_s > progress.since_s:
            return replace(over, state=MoveState.MOVED)
        if kept is not None:  # it was not evicted after all: its place is for others again
            self._given_up.append((move.workload, move.pod))
        tries = progress.tries + 1
        state = MoveState.WAITING if tries < MOST_TRIES else MoveState.KEPT
        return MoveProgress(state, self._now_s, 0 if state is MoveState.WAITING else self._now_s, tries)

    def _seen_replaced(self, move: Move, progress: MoveProgress) -> MoveProgress:
        """Its controller makes another pod, which is another workload: that one gets the place."""
        pod = self._state.pods.get(move.workload, {}).get(move.pod)
        if pod is not None and pod.phase in ACTIVE_PHASES:
            tries = progress.tries + 1
            state = MoveState.WAITING if tries < MOST_TRIES else MoveState.KEPT
            return MoveProgress(state, self._now_s, 0 if state is MoveState.WAITING else self._now_s, tries)
        heir = self._find_heir(move, progress)
        if heir and self._keep_again(replace(move, workload=heir)):
            self._heirs.add(heir)
            return replace(progress, heir=heir)
        if pod is None and self._now_s >= progress.since_s + LONGEST_REPLACEMENT_S:
            return replace(progress, state=MoveState.ENDED, until_s=self._now_s)
        self._hold(move)
        self.look_again(self._now_s + LOOK_AGAIN_S)
        return progress

    def _find_heir(self, move: Move, progress: MoveProgress) -> str:
        """The waiting workload that the controller made since then; empty: there is none yet."""
        state = self._state
        found = [
            (workload.submitted_s, name)
            for name in state.backlog.queued_names()
            if (workload := state.workloads[name]).made_by == move.made_by
            and workload.submitted_s >= progress.since_s - CLOCK_SKEW_S
            and name not in self._heirs
            and name not in state.nominations
            and name not in state.pods
        ]
        return min(found)[1] if found else ""

    def _hold(self, move: Move) -> None:
        """Until the next pod is there, nothing else gets its place in this cycle."""
        kept = Nomination(move.workload, move.pod, move.node, move.devices, move.cpu_milli, move.memory_mib)
        self._held.append(kept)
        self._cycle_state.working.hold(kept)

    def _keep_again(self, move: Move) -> bool:
        """Keep the place for a pod that waits without it: whoever led before had kept it, or it was given up."""
        if not self._state.backlog.is_queued(move.workload):
            return False
        pod = self._as_pod(move)
        if pod is None:
            return False
        with self._cycle_state.working.trial():
            workload = self._state.workloads[move.workload]
            if not may_be_at(self._cycle_state, self._state, workload, pod):
                return False
        self._nominate(pod, is_new=True)
        return True

    def _advance(self, step: MoveStep, number: int) -> bool:
        """Begin what can begin of a step; true if the next step may begin, too."""
        progress = self._without_ended(step, self._steps[number])
        self._put(progress)
        waiting = [at for at, each in enumerate(progress.moves) if each.state is MoveState.WAITING]
        if not waiting:
            return True
        if self._is_moot(step, progress):
            return self._skip(progress, SkipReason.NOT_NEEDED)
        if (again_s := max(progress.moves[at].since_s for at in waiting)) and again_s + RETRY_S > self._now_s:
            self.look_again(again_s + RETRY_S)
            return False
        names = dict.fromkeys(step.moves[at].workload for at in waiting)
        workloads = [self._state.workloads[name] for name in names]
        if any(self._movable.reason(workload) is not None for workload in workloads):
            if not self._in_flight:
                return self._skip(progress, SkipReason.PROTECTED)
            self.look_again(self._now_s + LOOK_AGAIN_S)  # a budget may be used up by what is moving
            return False
        pods = {at: self._state.pods[step.moves[at].workload][step.moves[at].pod] for at in waiting}
        with self._after.working.trial() as attempt:
            if not self._fits_after(step, pods):
                return self._skip(progress, SkipReason.NO_ROOM)
            chosen = self._choose(step, pods, progress)
            if len(chosen) == len(waiting):
                attempt.keep()
        if not self._budget.allows(self._state.workloads[step.moves[at].workload] for at in chosen):
            self.look_again(self._budget.again_s)
            return False
        if not chosen:
            return self._is_begun(self._steps[number])
        for at in chosen:
            self._begin_move(step, at, pods[at])
            progress = self._set(progress, at, replace(progress.moves[at], state=MoveState.MOVING, since_s=self._now_s))
        if len(chosen) == len(waiting):
            progress = replace(progress, is_freed=True)
            self._keep_places(step)
        self._put(progress)
        return self._is_begun(progress)

    def _without_ended(self, step: MoveStep, progress: StepProgress) -> StepProgress:
        """Pods that are no longer where the plan saw them need not move."""
        for at, (move, each) in enumerate(zip(step.moves, progress.moves, strict=True)):
            pod = self._state.pods.get(move.workload, {}).get(move.pod)
            if each.state is MoveState.WAITING and (
                move.workload not in self._state.workloads
                or pod is None
                or pod.node != move.source
                or pod.phase is not Phase.RUNNING
            ):
                progress = self._set(progress, at, replace(each, state=MoveState.ENDED, until_s=self._now_s))
        return progress

    def _is_moot(self, step: MoveStep, progress: StepProgress) -> bool:
        """Who was to get the room has gone, has started, or has room without these moves."""
        if not step.starts:
            return False
        state, name = self._state, step.beneficiary
        waits = state.backlog.is_queued(name) and name not in state.nominations
        if not waits or any(place.pod in state.pods.get(name, {}) for place in step.starts):
            return True
        return not progress.has_begun and self._starts_anyway(state.workloads[name])

    def _starts_anyway(self, workload: Workload) -> bool:
        found = self._state.backlog.class_of(workload.name)
        if not self._cycle_state.has_room(found):
            return False
        with self._cycle_state.working.trial():
            needs = needs_to_make_room_for(found)
            return place_workload(self._cycle_state.placer, self._state, workload, needs, grows=False) is not None

    @property
    def _in_flight(self) -> int:
        return sum(each.state is MoveState.MOVING for progress in self._steps for each in progress.moves)

    def _fits_after(self, step: MoveStep, pods: dict[int, Pod]) -> bool:
        """All that is left of the step fits, once its pods have left their places."""
        after, working = self._after, self._after.working
        by_workload: dict[str, dict[str, str]] = {}
        for pod in pods.values():
            workload = self._state.workloads[pod.workload]
            working.release(pod, working.queues.row[workload.queue], not workload.preemptible)
        for at, pod in pods.items():
            move = step.moves[at]
            if not may_be_at(after, self._state, self._state.workloads[pod.workload], _moved(pod, move)):
                return False
            by_workload.setdefault(pod.workload, {})[pod.name] = move.node
        for name, places in by_workload.items():
            if not keeps_levels(working.nodes, self._state, self._state.workloads[name], places):
                return False
        if not all(self._fits_waiting(place) for place in step.starts):
            return False
        if not step.starts:
            return True
        to_start = {place.pod: place.node for place in step.starts}
        return keeps_levels(working.nodes, self._state, self._state.workloads[step.beneficiary], to_start)

    def _fits_waiting(self, place: KeptPlace) -> bool:
        pod = self._as_pod(place)
        return pod is not None and may_be_at(self._after, self._state, self._state.workloads[place.workload], pod)

    def _choose(self, step: MoveStep, pods: dict[int, Pod], progress: StepProgress) -> list[int]:
        """The moves whose new places are free now; all of them where pods change places with each other."""
        allowed = self._allowance()
        if not allowed:
            return []
        left = {pod.workload: self._may_go(pod.workload) for pod in pods.values()}
        chosen: list[int] = []
        with self._cycle_state.working.trial():
            for at, pod in pods.items():
                workload = self._state.workloads[pod.workload]
                is_free = may_be_at(self._cycle_state, self._state, workload, _moved(pod, step.moves[at]), False)
                if is_free and len(chosen) < allowed and left[pod.workload] > 0:
                    left[pod.workload] -= 1
                    chosen.append(at)
        if chosen or any(each.state is MoveState.MOVING for each in progress.moves):
            return chosen
        if len(pods) > min(self._policy.moves_at_once, self._policy.moves_per_hour):
            self._skip(progress, SkipReason.TOO_MANY_AT_ONCE)
            return []
        together = Counter(pod.workload for pod in pods.values())
        if any(count > self._may_go(name) for name, count in together.items()):
            self._skip(progress, SkipReason.PROTECTED)
            return []
        return list(pods) if len(pods) <= allowed else []

    def _may_go(self, workload: str) -> int:
        """How many of its pods disruption budgets let stop."""
        found = self._state.workloads[workload]
        return found.may_go if found.may_go >= 0 else found.pods

    def _allowance(self) -> int:
        """How many moves may begin now."""
        lately_s = begun_lately([*self._run.recent_s, *begun_s(self._steps)], self._now_s)
        by_hour = self._policy.moves_per_hour - len(lately_s)
        if by_hour <= 0:
            self.look_again(rate_allows_s(lately_s, self._policy.moves_per_hour, self._now_s))
        return max(0, min(self._policy.moves_at_once - self._in_flight, by_hour))

    def _begin_move(self, step: MoveStep, at: int, pod: Pod) -> None:
        move = step.moves[at]
        workload = self._state.workloads[pod.workload]
        gpu_s = self._movable.lost_gpu_s(workload, pod)
        self._evictions.append(Eviction(pod.workload, pod.name, EvictionCause.DEFRAGMENT, step.beneficiary, gpu_s))
        self._budget.count(workload)
        if move.made_by:
            self._hold(move)
        else:
            self._nominate(_moved(pod, move), is_new=False)

    def _nominate(self, pod: Pod, is_new: bool) -> None:
        """Keep a place from now on, for others in this cycle, too. `is_new`: its queue does not pay for the pod yet."""
        nomination = nomination_of(pod.workload, pod.name, Start(pod.workload, pod.name, pod.node, pod.devices), pod)
        self._nominations.append(nomination)
        working, workload = self._cycle_state.working, self._state.workloads[pod.workload]
        working.hold(nomination)
        queue = working.queues.row.get(workload.queue)
        if is_new and queue is not None:
            working.charge(queue, charge_at(working, pod), not workload.preemptible)

    def _keep_places(self, step: MoveStep) -> None:
        for place in step.starts:
            pod = self._as_pod(place)
            if pod is not None:
                self._nominate(pod, is_new=True)

    def _as_pod(self, place: KeptPlace | Move) -> Pod | None:
        """The pod that would be there; None: nothing asks for it any more."""
        workload = self._state.workloads.get(place.workload)
        role = find_role(workload, place.pod) if workload is not None else None
        if role is None:
            return None
        start = Start(place.workload, place.pod, place.node, place.devices)
        return replace(assumed_pod(start, role.request, self._now_s), phase=Phase.RUNNING)


def _moved(pod: Pod, move: Move) -> Pod:
    return pod_at(pod, move.node, move.devices)


def _gpus(devices: Sequence[Share]) -> list[str]:
    return sorted(share.gpu for share in devices)
