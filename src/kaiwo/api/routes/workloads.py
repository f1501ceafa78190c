"""Routes that list, show and explain workloads, take checkpoints and progress, and cancel, hold or requeue them."""

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from kaiwo import explain
from kaiwo.api.context import wait_until_visible
from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, invalid, quote, translate
from kaiwo.api.http.query_params import Param
from kaiwo.api.http.request_body import Body, read_fields
from kaiwo.api.presenters.list_pages import COUNT_PARAMS, WORKLOAD_PARAMS, list_page, workload_query
from kaiwo.api.presenters.node_view import unhealthy_devices
from kaiwo.api.presenters.recovery_view import recovery_note
from kaiwo.api.presenters.workload_view import (
    KUBERNETES,
    WAITS,
    expected_start_sentence,
    obstacle_view,
    with_confinement,
    with_past,
    workload_counts,
    workload_detail,
)
from kaiwo.api.routes.array_names import MAX_HINTS, NamedTasks, expand_names, meant_name, with_meant_name
from kaiwo.api.security.own_work import check_change, check_sight, conceal, may_change, only_of
from kaiwo.api.views.answers import Outcome, Page
from kaiwo.api.views.workloads import (
    MAX_NAMES,
    ActionResult,
    BulkOutcome,
    ChangeView,
    CheckpointForm,
    NamesForm,
    ProgressForm,
    WhyView,
    WorkloadCountsView,
    WorkloadDetail,
    WorkloadView,
)
from kaiwo.clusters.protocol import Action
from kaiwo.explain.progress_sentences import progress_words
from kaiwo.forecast.expected_starts import ExpectedStart
from kaiwo.manifests import read_json
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.progress import FIELDS as PROGRESS_FIELDS
from kaiwo.manifests.values.progress import read_progress
from kaiwo.manifests.values.timestamps import read_past_timestamp_s
from kaiwo.manifests.write_manifest import workload_document
from kaiwo.model.errors import KaiwoError, NotFoundError
from kaiwo.model.obstacle import Obstacle, Reason, WhyVerdict
from kaiwo.model.reservation import clock_words
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.overview.workload_table import GPU, asked_milli
from kaiwo.runtime.partitioning.wait_sentences import wait_sentence
from kaiwo.snapshot.cluster_state import ClusterState

RETRY_S = 1.0
MAX_NAMED = 4  # domains that `why` tells of running work; `describe` has all
SUBMISSION = Param("submission", "int", "Number of the submission of this name (default: latest).", None, 1, 10**9)
NAMED = "/workloads/{namespace}/{name}"
# The states of the tasks that an array's name means.
TASK_STATES: dict[Action, tuple[WorkloadState, ...]] = {
    "cancel": tuple(state for state in WorkloadState if not state.is_over),
    "hold": (WorkloadState.WAITING,),
    "release": (WorkloadState.HELD,),
    "requeue": (WorkloadState.RUNNING, WorkloadState.FAILED, WorkloadState.CANCELLED),
}
ACTION_DONE = {"cancel": "cancelled", "hold": "held", "release": "released", "requeue": "requeued"}


async def list_workloads(call: EndpointCall) -> Page[WorkloadView]:
    call.context.overview.forward.refresh_in_background()
    return await list_page(call.context.overview, "workloads", call.query)


async def count_workloads(call: EndpointCall) -> WorkloadCountsView:
    await call.context.overview.fresh()
    return WorkloadCountsView(workload_counts(call.context.overview, workload_query(call.query)))


async def get_workload(call: EndpointCall) -> WorkloadDetail:
    record = find_submission(call)
    live = call.context.live
    past = live.cluster.abilities.past
    if past is not None and record.submission != live.cluster.record(record.workload.name).submission:
        gpu_milli, now_s = asked_milli(record.workload), live.cluster.now_s()
        detail = workload_detail(ClusterState(), record, gpu_milli, [], live.policy, now_s)
        return conceal(with_past(detail, past, record), call.person, record)
    rows = await call.context.overview.fresh()
    name, now_s = record.workload.name, live.cluster.now_s()
    at = rows.find(name)
    gpu_milli = 0 if at is None else int(rows.table[GPU, at])
    obstacles: tuple[Obstacle, ...] = ()
    if _is_explained(live, record):
        obstacles = await call.ask(lambda state: explain.obstacles_of(state, name, live.policy, now_s, live.plugins))
    views = [obstacle_view(each, live.cluster.kind) for each in obstacles]
    detail = workload_detail(live.state, record, gpu_milli, views, live.policy, now_s)
    if may_change(call.person, record):
        work = live.cluster.abilities.work
        changeable = list(work.changeable_fields(record)) if not record.state.is_over else []
        detail = replace(detail, may_change=True, may_do=list(work.actions), changeable=changeable)
    if (confinement := live.cluster.abilities.confinement) is not None:
        detail = with_confinement(detail, confinement, record)
    return conceal(detail if past is None else with_past(detail, past, record), call.person, record)


async def get_manifest(call: EndpointCall) -> dict[str, Any]:
    record = find_record(call)
    check_sight(call.context.access, call.person, record, "manifest")
    return workload_document(record.workload, record.program)


async def why(call: EndpointCall) -> WhyView:
    record = find_record(call)
    live = call.context.live
    name, now_s = record.workload.name, live.cluster.now_s()
    if record.state in WAITS and not record.message:  # a moment ago it may have been submitted
        await wait_until_visible(live, lambda: name in live.state.workloads)

    def protected(state: ClusterState) -> str:
        return explain.protected(state, name, live.policy, now_s, live.plugins) if name in state.workloads else ""

    found = await _explain(call, name, now_s) if _is_explained(live, record) else None
    if found is None and record.state is WorkloadState.HELD and record.message:
        answer = f"{name.removeprefix('default/')} is waiting: {record.message}"
        return WhyView(name, record.state, answer, [], 0, 0, None, record.message, now_s, verdict=WhyVerdict.BLOCKED)
    if found is None:
        note = recovery_note(live.state, name)
        lost = unhealthy_devices(live.state, name) or (f" But {note}." if note else "")
        answer, verdict = plain_answer(record) + lost + placed_note(live.state, name), WhyVerdict.NOT_WAITING
        kept = await call.ask(protected) if name in live.state.pods else ""
        return WhyView(
            name, record.state, answer, [], 0, 0, None, "It is not waiting.", now_s, verdict=verdict, protected=kept
        )
    expected = await _expected_start(call, name, found)
    kind, change = live.cluster.kind, found.change
    if change is not None and kind == KUBERNETES:
        named = change.subject if isinstance(change.subject, str) else ""
        change = explain.propose_in_kubernetes(change, live.cluster.abilities.work.kubectl_stop(named))
    return WhyView(
        workload=name,
        state=record.state,
        answer=f"{found.answer}; {note}" if (note := recovery_note(live.state, name)) else found.answer,
        obstacles=[obstacle_view(each.obstacle, kind) for each in found.obstacles],
        position=found.position,
        ahead=found.ahead,
        change=None if change is None else ChangeView(change.kind, change.by, change.sentence, change.command),
        no_change=found.no_change,
        as_of_s=now_s,
        partitions=wait_sentence(call.context.partitions, (role.request for role in record.workload.roles)),
        planned=found.planned,
        verdict=found.verdict,
        searched_all=found.searched_all,
        capped_priority=explain.capped_priority(live.state, name),
        expected=expected_start_sentence(expected, now_s) if expected else "",
        expected_s=expected.middle_s if expected else 0,
        expected_low_s=expected.low_s if expected else 0,
        expected_high_s=expected.high_s if expected else 0,
        ended_before=record.message if record.attempt else "",
    )


async def _expected_start(call: EndpointCall, name: str, found: explain.Why) -> ExpectedStart | None:
    """None: its start is planned or unknown, or it does not wait for a place."""
    if not found.position or found.planned:
        return None
    return (await call.context.overview.forward.expected_starts()).get(name)


def _is_explained(live: LiveLoop, record: WorkloadRecord) -> bool:
    """It waits, or it is a gang that lacks pods: the state alone does not say what is in its way."""
    name = record.workload.name
    return record.state in WAITS or name in live.state.below_minimum or name in live.state.nominations


async def _explain(call: EndpointCall, name: str, now_s: int) -> explain.Why | None:
    """If the next cycle will try the work, ask again after that cycle, for a limited time."""
    live = call.context.live

    def question(state: ClusterState) -> explain.Why | None:
        return explain.why(state, name, live.policy, now_s, live.plugins) if name in state.workloads else None

    found = await call.ask(question)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RETRY_S):
            while found is not None and any(each.obstacle.reason is Reason.NOT_TRIED for each in found.obstacles):
                last = live.last_cycle
                while live.last_cycle is last:
                    await live.changed(live.revision)
                found = await call.ask(question)
    return found


def find_submission(call: EndpointCall) -> WorkloadRecord:
    """The submission that the request names, or the latest one."""
    record, number = find_record(call), call.query["submission"]
    past = call.context.live.cluster.abilities.past
    if past is None and number is not None:
        raise NotFoundError("this cluster does not number submissions; leave out the submission")
    return record if past is None or number is None else past.submission(record.workload.name, number)


def find_record(call: EndpointCall) -> WorkloadRecord:
    name = f"{call.path['namespace']}/{call.path['name']}"
    cluster = call.context.live.cluster
    try:
        return cluster.record(name)
    except NotFoundError:
        way_out = meant_name(cluster, name) or "it may have ended and been removed; see: kaiwo get workloads"
        raise NotFoundError(f"there is no workload {quote(name)}; {way_out}") from None


def plain_answer(record: WorkloadRecord) -> str:
    state = record.state.value
    if record.state.is_over:
        ended = "was cancelled" if record.state is WorkloadState.CANCELLED else state
        return f"It is not waiting: it {ended}" + (f" ({record.message})." if record.message else ".")
    why = f" ({record.message})" if record.state is WorkloadState.STOPPING and record.message else ""
    expires_s = record.workload.expires_s
    until = f", and its allocation is granted until {clock_words(expires_s)}" if expires_s else ""
    return f"It is not waiting: it is {state}{why}{until}."


def placed_note(state: ClusterState, name: str) -> str:
    """Why running work is where it is: the domains that were chosen for it, with every term of their scores."""
    choices = state.domain_choices.get(name, ())[:MAX_NAMED] if name in state.pods else ()
    sentences = (explain.chosen_domain(choice) for choice in choices)
    return "".join(f" {each[:1].upper()}{each[1:]}." for each in sentences)


async def _act(call: EndpointCall, verb: Action) -> Outcome:
    record = find_record(call)
    check_change(call.context.access, call.person, record)
    name = record.workload.name
    await call.context.live.cluster.abilities.work.change(verb, name, call.user, only_of(call.person))
    call.trail.changed(f"workload/{name}", record.state, call.context.live.cluster.record(name).state)
    return Outcome([f"workload {name} {ACTION_DONE[verb]}"], [], [name])


async def _act_on_all(call: EndpointCall, verb: Action) -> BulkOutcome:
    """Report for each name what was done, or the Problem that the single call would have answered with."""
    try:
        form = msgspec.convert(read_json(call.body), NamesForm)
    except msgspec.ValidationError:
        raise invalid(
            f'names must be a list of 1 to {MAX_NAMES} workloads, such as {{"names": ["default/train"]}}'
        ) from None
    named = expand_names(await call.context.overview.fresh(), form.names, TASK_STATES[verb])
    names = list(dict.fromkeys(name for each in named for name in each.workloads))
    before = {name: _state_of(call, name) for each in named if not each.is_array for name in each.workloads}
    work = call.context.live.cluster.abilities.work
    refusals = dict(
        zip(names, await work.change_many(verb, names, call.user, only_of(call.person)) if names else (), strict=True)
    )
    results = []
    for each in named:
        if each.is_array:
            results.append(_array_result(call, verb, each, refusals))
            continue
        refusal = refusals[each.name]
        if refusal is None:
            call.trail.changed(f"workload/{each.name}", before[each.name], _state_of(call, each.name))
        else:
            call.trail.refused(f"workload/{each.name}", str(refusal))
        if refusal is not None and len(named) <= MAX_HINTS:
            refusal = with_meant_name(call.context.live.cluster, each.name, refusal)
        results.append(_result(verb, each.name, refusal))
    return BulkOutcome(results)


def _array_result(
    call: EndpointCall, verb: Action, named: NamedTasks, refusals: Mapping[str, KaiwoError | None]
) -> ActionResult:
    """One result, and one record of the audit, for all tasks of an array."""
    refused = [refusal for name in named.workloads if (refusal := refusals[name]) is not None]
    done = len(named.workloads) - len(refused)
    if not done:
        states = " or ".join(TASK_STATES[verb])
        error = refused[0] if refused else NotFoundError(f"no task of the {named.array_words} is {states}")
        call.trail.refused(f"workload/{named.name}", str(error))
        return ActionResult(named.name, "", translate(error).problem)
    call.trail.changed(f"workload/{named.name}", None, {"tasks": done, "refused": len(refused)})
    more = f"; {len(refused):,} refused, the first because {refused[0]}" if refused else ""
    return ActionResult(
        named.name, f"{named.array_words}: {done:,} {'task' if done == 1 else 'tasks'} {ACTION_DONE[verb]}{more}"
    )


def _state_of(call: EndpointCall, name: str) -> str | None:
    try:
        return call.context.live.cluster.record(name).state.value
    except NotFoundError:
        return None


def _result(verb: str, name: str, refusal: KaiwoError | None) -> ActionResult:
    if refusal is None:
        return ActionResult(name, f"workload {name} {ACTION_DONE[verb]}")
    return ActionResult(name, "", translate(refusal).problem)


async def checkpoint(call: EndpointCall) -> Outcome:
    """A time in the future counts as now, so that a fast clock does not hide lost work."""
    record, fields = find_record(call), read_fields(call.body, "at")
    check_change(call.context.access, call.person, record)
    name = record.workload.name
    at_s = read_past_timestamp_s(fields["at"], FieldPath("checkpoint", "at")) if "at" in fields else 0
    live = call.context.live
    saved_s = await live.cluster.abilities.work.checkpoint(name, at_s, call.user, only_of(call.person))
    call.trail.changed(f"workload/{name}", record.workload.checkpoint_s, saved_s)
    await wait_until_visible(
        live, lambda: name not in live.state.workloads or live.state.workloads[name].checkpoint_s >= saved_s
    )
    return Outcome([f"workload {name} last saved its work at {clock_words(saved_s)}"], [], [name])


async def progress(call: EndpointCall) -> Outcome:
    record, fields = find_record(call), read_fields(call.body, "pod", *PROGRESS_FIELDS)
    check_change(call.context.access, call.person, record)
    name, live = record.workload.name, call.context.live
    pod = fields.pop("pod", "")
    if not isinstance(pod, str):
        raise invalid("pod is the name of one of its pods", "pod")
    report = read_progress(fields, FieldPath("", "progress"), name, live.cluster.now_s(), pod)
    await live.cluster.abilities.work.progress(report, call.user, only_of(call.person))
    call.trail.changed(f"workload/{name}", None, {"progress": fields, "pod": pod})
    return Outcome([f"workload {name}: {progress_words(report)}"], [], [name])


def _route(method: str, path: str, summary: str, endpoint: Any, answer: Any, body: Body | None = None) -> Route:
    return Route(method, NAMED + path, summary, endpoint, answer, body=body, errors=(404,))


def _bulk_route(verb: Action, summary: str) -> Route:
    return Route("POST", f"/workloads/{verb}", summary, partial(_act_on_all, verb=verb), BulkOutcome, body=NAMES)


NAMES = Body((JSON,), NamesForm)
WHEN = Body((JSON,), CheckpointForm, required=False)
SPEED = Body((JSON,), ProgressForm, required=False)  # who may not report is told that first
ROUTES = (
    Route("GET", "/workloads", "List workloads.", list_workloads, Page[WorkloadView], params=WORKLOAD_PARAMS),
    Route(
        "GET",
        "/workloads/counts",
        "Count workloads by state.",
        count_workloads,
        WorkloadCountsView,
        params=COUNT_PARAMS,
    ),
    Route(
        "GET", NAMED, "All details of one workload.", get_workload, WorkloadDetail, params=(SUBMISSION,), errors=(404,)
    ),
    _route("DELETE", "", "Cancel it.", partial(_act, verb="cancel"), Outcome),
    _route("POST", "/hold", "Keep it from starting.", partial(_act, verb="hold"), Outcome),
    _route("POST", "/release", "Undo hold.", partial(_act, verb="release"), Outcome),
    _route("POST", "/requeue", "Stop it if it is running, and queue it again.", partial(_act, verb="requeue"), Outcome),
    _route("GET", "/manifest", "Its manifest, which can be applied again.", get_manifest, dict[str, Any]),
    _route("GET", "/why", "Why it waits, and what would start it now.", why, WhyView),
    _route("POST", "/checkpoint", "Report a checkpoint, taken now or at the given time.", checkpoint, Outcome, WHEN),
    _route("POST", "/progress", "Report how fast it is: the time of a step, or a bandwidth.", progress, Outcome, SPEED),
    _bulk_route("cancel", "Cancel many workloads, with a result for each."),
    _bulk_route("hold", "Hold many workloads."),
    _bulk_route("release", "Release many workloads."),
    _bulk_route("requeue", "Requeue many workloads."),
)
