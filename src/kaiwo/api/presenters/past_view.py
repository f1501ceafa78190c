"""The past of one workload in words: its timeline, its evictions, and what it used of what it held."""

from collections.abc import Callable, Iterator, Sequence

from kaiwo import explain
from kaiwo.api.presenters.workload_view import KUBERNETES, WAITS, past_attempt_view
from kaiwo.api.views.past import EfficiencyView, EndedWorkView, EvictionView, HistoryView, MomentView
from kaiwo.history.past.happenings import Evicted, Life, LifeKey, Moment, Planned
from kaiwo.history.past.timeline import Timeline
from kaiwo.model.amounts import gpus, rounded_duration
from kaiwo.model.plan import EvictionCause
from kaiwo.model.planned_start import PlannedPod, PlannedStart
from kaiwo.model.workload_record import AttemptRecord, WorkloadRecord, WorkloadState
from kaiwo.runtime.overview.workload_table import asked_milli
from kaiwo.runtime.recording.past_recorder import held_milli_s

STOPPING_S = 120  # an attempt that ends this soon after an eviction ended by it
LITTLE_GPU_S = 36  # of lost work: less is not worth a word
UNKNOWN_REASON = "the reason is not known"
NO_RECORD = "Why it waited is not known: it was submitted before Kaiwo recorded that, or it is too long ago."
NO_USE = (
    "How much of its GPUs it used is not known: no agent measured them, it shared them with others, or it ran for only "
    "a few seconds."
)
NO_EXIT = "Exit codes and the output of its pods are with Kubernetes: kubectl logs, kubectl describe pod."
# In the order of one second.
ORDER = ("submitted", "unwatched", "evicted", "stopped", "waited", "planned", "started", "ended")
CAUSES = {
    EvictionCause.RECLAIM: "its queue used more than its share",
    EvictionCause.PREEMPT: "other work is more important",
    EvictionCause.CONSOLIDATE: "it was moved to make room",
    EvictionCause.STALE_GANG: "too few of its pods ran for too long",
    EvictionCause.DRAIN: "its node was drained",
    EvictionCause.DEADLINE: "it was backfilled, and the planned start of others was due",
    EvictionCause.RECOVERY: "it lost pods to a failure",
    EvictionCause.DEFRAGMENT: "it was moved, as a person had asked for",
    EvictionCause.RESERVATION: "its GPUs were reserved for others",
    EvictionCause.EXPIRED: "its allocation had expired",
    EvictionCause.FOREIGN_BINDING: "somebody else than Kaiwo had bound it to its node",
}


def history_view(
    record: WorkloadRecord | None,
    timeline: Timeline | None,
    attempts: Sequence[AttemptRecord] | None,
    submissions: Sequence[int],
    now_s: int,
    kind: str,
) -> HistoryView:
    """`record` or `timeline` may be missing, not both. `attempts` None: the cluster keeps none of its own."""
    life = timeline.life if timeline is not None else _life_of(record)
    shown = list(attempts if attempts is not None else timeline.attempts if timeline is not None else ())
    state, ended_s, message, exit_code = _ending(record, life)
    gpu_milli = asked_milli(record.workload) if record is not None else life.gpu_milli
    evictions = timeline.evictions if timeline is not None else []
    efficiency = _efficiency(record, timeline, shown, gpu_milli, now_s)
    moments = [
        MomentView("submitted", life.submitted_s, 0, _submitted(life, gpu_milli)),
        *(_recorded(timeline) if timeline is not None else ()),
        *_ran(shown, evictions),
    ]
    if ended_s:
        moments.append(MomentView("ended", ended_s, 0, _ended(state, exit_code, message)))
    moments.sort(key=lambda each: (each.at_s, ORDER.index(each.kind)))
    return HistoryView(
        workload=life.key.workload,
        submission=life.key.number,
        submissions=list(submissions),
        queue=record.workload.queue if record is not None else life.queue,
        user=record.workload.user if record is not None else life.user,
        state=state,
        submitted_s=life.submitted_s,
        started_s=shown[-1].started_s if shown else life.started_s,
        ended_s=ended_s,
        exit_code=exit_code,
        message=message,
        now_s=now_s,
        timeline=moments,
        attempts=[past_attempt_view(each) for each in shown],
        evictions=[_eviction(each) for each in evictions],
        efficiency=efficiency,
        unknown=_unknown(timeline, efficiency, kind),
    )


def ended_work_view(life: Life) -> EndedWorkView:
    return EndedWorkView(
        workload=life.key.workload,
        submission=life.key.number,
        queue=life.queue,
        user=life.user,
        state=life.state,
        gpu_milli=life.gpu_milli,
        submitted_s=life.submitted_s,
        started_s=life.started_s,
        ended_s=life.ended_s,
        attempts=life.attempts,
        evictions=life.evictions,
        exit_code=life.exit_code,
        message=life.message,
        held_gpu_milli_s=life.held_milli_s,
        measured_gpu_milli_s=life.known_milli_s,
        used_gpu_milli_s=life.used_milli_s,
    )


def _life_of(record: WorkloadRecord | None) -> Life:
    """What the cluster's own record says, where nothing else is stored."""
    assert record is not None
    workload = record.workload
    return Life(LifeKey(workload.name, record.submission), workload.submitted_s, workload.queue, workload.user)


def _ending(record: WorkloadRecord | None, life: Life) -> tuple[str, int, str, int | None]:
    """State, end, message and exit code."""
    if record is not None:
        is_over = record.state.is_over
        return (
            record.state.value,
            record.ended_s if is_over else 0,
            record.message,
            record.exit_code if is_over else None,
        )
    return life.state, life.ended_s, life.message, life.exit_code if life.state else None


def _submitted(life: Life, gpu_milli: int) -> str:
    by = f" by {life.user}" if life.user else ""
    return f"submitted to queue {life.queue}{by}, asking for {gpus(gpu_milli)}"


def _recorded(timeline: Timeline) -> Iterator[MomentView]:
    for wait in timeline.waits:
        why = UNKNOWN_REASON if wait.obstacle is None else explain.sentence(wait.obstacle)
        yield MomentView("waited", wait.from_s, wait.until_s, f"waited: {why}", is_over=bool(wait.until_s))
    for moment in timeline.planned:
        assert isinstance(moment.what, Planned)
        yield MomentView("planned", moment.at_s, 0, _planned(timeline.life.key.workload, moment.what))
    for moment in timeline.evictions:
        yield MomentView("evicted", moment.at_s, 0, _evicted(moment))
    for from_s, until_s in timeline.unwatched:
        yield MomentView("unwatched", from_s, until_s, "no scheduler was there to see what happened")


def _planned(workload: str, planned: Planned) -> str:
    if not planned.start_s:
        return "it had no planned start any more"
    places = tuple(PlannedPod("", node) for node in planned.nodes)
    again = PlannedStart(
        workload, planned.start_s, places, after=planned.after, delay=planned.delay, delayed_by=planned.delayed_by
    )
    return explain.planned_when_made(again)


def _ran(attempts: Sequence[AttemptRecord], evictions: Sequence[Moment]) -> Iterator[MomentView]:
    for attempt in attempts:
        nodes = sorted({pod.node for pod in attempt.pods})
        more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
        devices = sum(len(pod.devices) for pod in attempt.pods)
        on = f" on {', '.join(nodes[:4])}{more}" if nodes else ""
        what = f" with {devices} {'device' if devices == 1 else 'devices'}" if devices else ""
        text = f"attempt {attempt.number} started{on}{what}"
        yield MomentView("started", attempt.started_s, 0, text, attempt.number)
        if attempt.ended_s and not _was_evicted(attempt, evictions):
            why = attempt.message or (f"exit code {attempt.exit_code}" if attempt.exit_code else "")
            took = rounded_duration(attempt.ended_s - attempt.started_s)
            text = f"attempt {attempt.number} ended after {took}{f': {why}' if why else ''}"
            yield MomentView("stopped", attempt.ended_s, 0, text, attempt.number)


def _was_evicted(attempt: AttemptRecord, evictions: Sequence[Moment]) -> bool:
    """Whether one of these ended it; the attempt itself then needs no line of its own."""
    return any(
        attempt.started_s <= each.at_s <= attempt.ended_s and attempt.ended_s - each.at_s <= STOPPING_S
        for each in evictions
    )


def _evicted(moment: Moment) -> str:
    what = moment.what
    assert isinstance(what, Evicted)
    pods = "its pod" if what.pods == 1 else f"{what.pods} of its pods"
    text = f"the scheduler stopped {pods} ({what.cause}: {CAUSES[what.cause]})"
    if what.beneficiary:
        text += f" for {what.beneficiary}"
        text += f" of {what.user}" if what.user else ""
        text += f", queue {what.queue}" if what.queue else ""
    is_much = what.lost_gpu_s >= LITTLE_GPU_S
    return f"{text}; {what.lost_gpu_s / 3600:.2f} GPU-hours of work were not saved" if is_much else text


def _eviction(moment: Moment) -> EvictionView:
    what = moment.what
    assert isinstance(what, Evicted)
    whom = (what.beneficiary, what.user, what.queue)
    return EvictionView(moment.at_s, what.cause.value, what.pods, "scheduler", *whom, list(what.nodes), what.lost_gpu_s)


def _ended(state: str, exit_code: int | None, message: str) -> str:
    if not state:
        return f"ended; how is not known{f': {message}' if message else ''}"
    code = f", exit code {exit_code}" if exit_code and "exit code" not in message else ""
    if state == WorkloadState.CANCELLED and message.startswith(state):  # it says by whom
        return f"{message}{code}"
    return f"{state}{code}{f': {message}' if message else ''}"


def _efficiency(
    record: WorkloadRecord | None,
    timeline: Timeline | None,
    attempts: Sequence[AttemptRecord],
    gpu_milli: int,
    now_s: int,
) -> EfficiencyView:
    life = timeline.life if timeline is not None else None
    held = held_milli_s(attempts, gpu_milli, now_s) or (life.held_milli_s if life is not None else 0)
    known = min(held, life.known_milli_s) if life is not None else 0
    used = min(known, life.used_milli_s) if life is not None and known else None
    roles = record.workload.roles if record is not None else ()
    waited = sum((each.until_s or now_s) - each.from_s for each in timeline.waits) if timeline is not None else 0
    evictions = timeline.evictions if timeline is not None else ()
    return EfficiencyView(
        waited_s=waited if timeline is not None else _waited_s(record, attempts, now_s),
        ran_s=sum((each.ended_s or now_s) - each.started_s for each in attempts),
        held_gpu_milli_s=held,
        measured_gpu_milli_s=known,
        used_gpu_milli_s=used,
        wasted_gpu_milli_s=None if used is None else known - used,
        used_percent=None if used is None else (200 * used + known) // (2 * known),
        lost_gpu_s=sum(each.what.lost_gpu_s for each in evictions if isinstance(each.what, Evicted)),
        asked_memory_mib=max((role.request.memory_mib for role in roles), default=0),
        peak_memory_mib=max((each.peak_mib for each in attempts), default=0) or None,
    )


def _waited_s(record: WorkloadRecord | None, attempts: Sequence[AttemptRecord], now_s: int) -> int:
    """Between its submission and its attempts."""
    if record is None:
        return 0
    waited, at_s = 0, record.workload.submitted_s
    for attempt in attempts:
        waited, at_s = waited + max(0, attempt.started_s - at_s), attempt.ended_s or now_s
    return waited + (max(0, now_s - at_s) if record.state in WAITS else 0)


def _unknown(timeline: Timeline | None, efficiency: EfficiencyView, kind: str) -> list[str]:
    checks: tuple[tuple[Callable[[], bool], str], ...] = (
        (lambda: timeline is None, NO_RECORD),
        (lambda: timeline is not None and timeline.is_cut, "More happened before that is not shown."),
        (lambda: bool(efficiency.held_gpu_milli_s) and efficiency.used_gpu_milli_s is None, NO_USE),
        (lambda: kind == KUBERNETES, NO_EXIT),
    )
    return [sentence for holds, sentence in checks if holds()]
