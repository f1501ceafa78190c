"""Views of workloads and their obstacles, and pages of workloads."""

from collections.abc import Iterable

from msgspec.structs import replace

from kaiwo import explain
from kaiwo.api.http.query_params import write_cursor
from kaiwo.api.views.answers import Page
from kaiwo.api.views.cluster import Usage
from kaiwo.api.views.workloads import (
    ArrayView,
    DomainChoiceView,
    ObstacleView,
    PastAttemptView,
    PodView,
    WorkloadDetail,
    WorkloadView,
)
from kaiwo.clusters.protocol import Confinement, PastWork
from kaiwo.forecast.expected_starts import ExpectedStart
from kaiwo.manifests import describe_role, describe_workload
from kaiwo.manifests.values.names import all_tasks
from kaiwo.model.amounts import rounded_duration
from kaiwo.model.gpus.gpu import WHOLE_MILLI, Share
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.plan import DomainChoice
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Phase, Pod, pod_index, role_name
from kaiwo.model.workload_fields import FIELDS
from kaiwo.model.workload_record import AttemptRecord, WorkloadRecord, WorkloadState
from kaiwo.runtime.overview.cluster_overview import ClusterOverview
from kaiwo.runtime.overview.workload_pages import FoldedArray, WorkloadQuery, count_states, select
from kaiwo.runtime.overview.workload_table import GPU
from kaiwo.snapshot.cluster_state import ClusterState

NOT_TRIED = "not tried yet"
KUBERNETES = "kubernetes"
WAITS = (WorkloadState.WAITING, WorkloadState.HELD)
PLACED = (WorkloadState.RUNNING, WorkloadState.STARTING, WorkloadState.STOPPING)
# The state of an array is the first of these that one of its tasks is in.
BY_LIVELINESS = (
    WorkloadState.RUNNING, WorkloadState.STARTING, WorkloadState.STOPPING, WorkloadState.WAITING, WorkloadState.HELD,
    WorkloadState.FAILED, WorkloadState.CANCELLED, WorkloadState.SUCCEEDED,
)  # fmt: skip


def workload_page(overview: ClusterOverview, query: WorkloadQuery) -> Page[WorkloadView]:
    """One page of workloads; call after `overview.fresh`."""
    rows, state = overview.rows, overview.live.state
    found = select(rows, query, *_named_by(overview, query))
    starts = overview.forward.starts
    items = [
        workload_view(state, record, int(rows.table[GPU, at]), starts.get(record.workload.name))
        for at in found.positions
        for record in (rows.records[at],)
    ]
    if found.folded:
        items = [
            item if (array := found.folded.get(at)) is None else array_view(item, array)
            for at, item in zip(found.positions, items, strict=True)
        ]
    return Page(items, found.total, "" if found.next is None else write_cursor(found.next))


def workload_counts(overview: ClusterOverview, query: WorkloadQuery) -> dict[str, int]:
    """How many workloads in each state match; call after `overview.fresh`."""
    return count_states(overview.rows, query, *_named_by(overview, query))


def _named_by(overview: ClusterOverview, query: WorkloadQuery) -> tuple[set[str], set[str]]:
    """The queues that a query means, and the workloads on its node."""
    queues = overview.queues_below(query.queue) if query.queue else set()
    held = overview.live.state.allocations_on.get(query.node, {}).values() if query.node else ()
    return queues, {each.workload for each in held}


def expected_start_sentence(expected: ExpectedStart, now_s: int) -> str:
    """`it is expected to start in 20 min; four of five times that is between 5 min and 1 h from now`."""
    middle, low = (rounded_duration(max(0, at_s - now_s)) for at_s in (expected.middle_s, expected.low_s))
    text = f"it is expected to start in {middle}" if expected.middle_s > now_s else "it is expected to start now"
    if not expected.high_s:
        return f"{text}, and not before {low} from now; it may also take much longer"
    return f"{text}; four of five times that is between {low} and {rounded_duration(expected.high_s - now_s)} from now"


def workload_view(
    state: ClusterState, record: WorkloadRecord, gpu_milli: int, expected: ExpectedStart | None = None
) -> WorkloadView:
    workload = record.workload
    pods = [pod for pod in state.pods.get(workload.name, {}).values() if pod.phase is not Phase.DONE]
    planned = state.planned_starts.get(workload.name)
    if record.state not in WAITS or planned is not None:
        expected = None
    return WorkloadView(
        name=workload.name,
        queue=workload.queue,
        user=workload.user,
        kind=workload.kind,
        state=record.state,
        priority=state.workloads.get(workload.name, workload).priority,
        wants=describe_workload(workload),
        gpu_milli=gpu_milli,
        pods=Usage(workload.pods, len(pods)),
        submitted_s=workload.submitted_s,
        started_s=record.started_s,
        ended_s=record.ended_s,
        attempt=record.attempt,
        reason=reason_of(state, record),
        nodes=sorted({pod.node for pod in pods}),
        labels=workload.labels,
        planned_s=planned.start_s if planned and planned.is_time_known else 0,
        expected_s=expected.middle_s if expected else 0,
        expected_low_s=expected.low_s if expected else 0,
        expected_high_s=expected.high_s if expected else 0,
    )


def array_view(first: WorkloadView, array: FoldedArray) -> WorkloadView:
    """An array as one item, made from the view of its first task."""
    tasks = sum(array.states.values())
    counted = {state: array.states[state] for state in BY_LIVELINESS if state in array.states}
    return replace(
        first,
        name=all_tasks(array.array),
        state=next(iter(counted)),
        wants=f"{tasks:,} x {first.wants}",
        gpu_milli=array.gpu_milli,
        pods=Usage(first.pods.total * tasks, first.pods.total * sum(array.states.get(state, 0) for state in PLACED)),
        submitted_s=array.submitted_s,
        started_s=array.started_s,
        ended_s=array.ended_s,
        reason=", ".join(f"{count:,} {state}" for state, count in counted.items()),
        nodes=[],
        planned_s=0,
        array=ArrayView(tasks, array.indices, {state.value: count for state, count in counted.items()}),
    )


def reason_of(state: ClusterState, record: WorkloadRecord) -> str:
    if record.state not in WAITS:
        return record.message
    obstacles = waiting_obstacles(state, record.workload.name)
    if record.state is WorkloadState.HELD and not obstacles and record.message:
        return record.message  # the scheduler does not know of it: whatever holds it gives the reason
    if record.state is WorkloadState.HELD and not obstacles:  # so new that the cluster's state does not have it yet
        obstacles = (Obstacle(Reason.HELD),)
    return explain.sentence(explain.in_order_of_telling(obstacles)[0]) if obstacles else NOT_TRIED


def waiting_obstacles(state: ClusterState, name: str) -> tuple[Obstacle, ...]:
    """The obstacles that the last cycle found; empty if the workload was not tried yet."""
    at_gate = state.backlog.gated.get(name)
    if at_gate is not None:
        return at_gate
    return state.backlog.class_of(name).obstacles if state.backlog.is_queued(name) else ()


def workload_detail(
    state: ClusterState,
    record: WorkloadRecord,
    gpu_milli: int,
    obstacles: Iterable[ObstacleView],
    policy: Policy,
    now_s: int,
) -> WorkloadDetail:
    workload, program = record.workload, record.program
    pods = state.pods.get(workload.name, {})
    capped = explain.capped_priority(state, workload.name)
    return WorkloadDetail(
        summary=workload_view(state, record, gpu_milli),
        placed=[pod_view(pods[name]) for name in sorted(pods, key=_numbered)],
        obstacles=[*obstacles],
        requests=[describe_role(role) for role in workload.roles],
        command=list(program.command),
        image=program.image,
        secret_env=sorted(program.secret_env),
        after=[*workload.after, *workload.after_failed],
        learned_s=state.workloads.get(workload.name, workload).learned_s,
        retries=program.retries,
        exit_code=record.exit_code,
        message=record.message,
        planned=explain.planned_start(state, workload.name, now_s),
        incomplete=explain.below_minimum(state, workload.name, policy, now_s),
        kept_places=explain.kept_places(state, workload.name, policy, now_s),
        checkpoint_s=workload.checkpoint_s,
        domains=[_domain_view(each) for each in state.domain_choices.get(workload.name, ()) if pods],
        progress=explain.progress(state, workload.name, now_s) if pods else "",
        asked_priority=workload.priority if capped else None,
        capped_priority=capped,
        **{field.name: getattr(workload, field.name) for field in FIELDS},
    )


def _domain_view(choice: DomainChoice) -> DomainChoiceView:
    terms = (choice.score, choice.availability, choice.alignment, choice.utilisation, choice.performance)
    place = (choice.part, choice.topology, choice.level, choice.domain, choice.strategy)
    return DomainChoiceView(*place, *terms, explain.chosen_domain(choice))


def pod_view(pod: Pod) -> PodView:
    devices = [_device_name(each) for each in pod.devices]
    return PodView(pod.name, pod.node, pod.phase, pod.since_s, devices, pod.rank)


def with_past(detail: WorkloadDetail, past: PastWork, record: WorkloadRecord) -> WorkloadDetail:
    """Add what is kept of earlier attempts and submissions; ended work shows the nodes of its last attempt."""
    name = record.workload.name
    attempts = [past_attempt_view(each) for each in past.attempts_of(name, record.submission)]
    summary = detail.summary
    if record.state.is_over:
        summary = replace(summary, nodes=attempts[-1].nodes if attempts else [])
    return replace(
        detail,
        summary=summary,
        submission=record.submission,
        submissions=[*past.submissions_of(name)],
        attempts=attempts,
    )


def with_confinement(detail: WorkloadDetail, confinement: Confinement, record: WorkloadRecord) -> WorkloadDetail:
    """Say so where nothing holds its processes to the memory that it asked for."""
    asks_for_memory = record.program.command and any(role.request.memory_mib for role in record.workload.roles)
    return replace(detail, memory_promise=confinement.promise) if asks_for_memory else detail


def past_attempt_view(attempt: AttemptRecord) -> PastAttemptView:
    return PastAttemptView(
        attempt=attempt.number,
        started_s=attempt.started_s,
        ended_s=attempt.ended_s,
        exit_code=attempt.exit_code,
        message=attempt.message,
        nodes=sorted({pod.node for pod in attempt.pods}),
        devices=[f"{pod.node}/{_device_name(each)}" for pod in attempt.pods for each in pod.devices],
        peak_mib=attempt.peak_mib,
    )


def _device_name(share: Share) -> str:
    return share.gpu if share.milli == WHOLE_MILLI else f"{share.gpu}:{share.milli}m"


def obstacle_view(obstacle: Obstacle, kind: str) -> ObstacleView:
    remedy = explain.remedy_in_kubernetes if kind == KUBERNETES else explain.remedy
    # A point in time, and "1 queue" of 0, are no amounts; the sentence says what is missing.
    is_amount = obstacle.unit not in ("s", "queues", "workloads", "tasks")
    return ObstacleView(
        reason=obstacle.reason.value,
        sentence=explain.sentence(obstacle),
        remedy=remedy(obstacle),
        need=obstacle.need if is_amount else 0,
        have=obstacle.have if is_amount else 0,
        unit=obstacle.unit if is_amount else "",
        subject=obstacle.subject,
    )


def _numbered(pod: str) -> tuple[str, int]:
    """main-2 before main-10."""
    return role_name(pod), pod_index(pod)
