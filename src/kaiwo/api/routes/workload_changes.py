"""The route that changes workloads in place: priority, queue, time limit, size and other settings.

A user may only lower what others would pay for: a higher priority, a longer time limit or a larger size is for
operators and administrators.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import fields

from kaiwo.api.context import wait_until_visible
from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, invalid, translate
from kaiwo.api.http.request_body import Body
from kaiwo.api.routes.array_names import MAX_HINTS, NamedTasks, expand_names, with_meant_name
from kaiwo.api.routes.submissions import workload_summary
from kaiwo.api.security.own_work import may_use, only_of
from kaiwo.api.security.roles import Right
from kaiwo.api.views.workloads import MAX_NAMES, ActionResult, BulkOutcome, SetForm
from kaiwo.clusters.protocol import ChangedWorkload
from kaiwo.manifests import describe_workload, read_json
from kaiwo.manifests.workload_change import CHANGEABLE, SIZE_FIELDS, apply_change, raised_fields
from kaiwo.model.amounts import duration, rate
from kaiwo.model.errors import ForbiddenError, KaiwoError, NotFoundError
from kaiwo.model.reservation import clock_words
from kaiwo.model.workload import Workload
from kaiwo.model.workload_fields import FIELDS, ValueKind
from kaiwo.model.workload_record import WorkloadState

UNFINISHED = tuple(state for state in WorkloadState if not state.is_over)
_FOLLOWS_A_RELEASE = ("not_before_s", "not_before_why")  # waiting counts from then on
_SETTINGS = {field.short: field for field in FIELDS}


async def set_workloads(call: EndpointCall) -> BulkOutcome:
    """Report for each name what was changed, or the problem."""
    form = _read(call.body)
    live, person = call.context.live, call.person
    now_s = live.cluster.now_s()
    warnings: list[str] = []

    def change(workload: Workload) -> Workload:
        changed = apply_change(form.fields, workload, now_s, warnings)
        raised = raised_fields(workload, changed)
        if raised and not person.has(Right.OPERATE):
            raise ForbiddenError(
                f"workload {workload.name}: {person.name} may lower {' and '.join(raised)}, but not raise it; this "
                f"needs the role operator or admin: ask {call.context.access.whom_to_ask()}, or cancel it and submit "
                "it again"
            )
        may_move = person.has(Right.OPERATE) or may_use(person, changed.queue, live.state.queue_objects)
        if changed.queue != workload.queue and not may_move:
            raise ForbiddenError(
                f"workload {workload.name}: {person.name} may not submit into queue {changed.queue}, only into "
                f"{', '.join(person.queues)}; name one of these, or ask {call.context.access.whom_to_ask()}"
            )
        return changed

    named = expand_names(await call.context.overview.fresh(), form.names, UNFINISHED)
    names = list(dict.fromkeys(name for each in named for name in each.workloads))
    results = await live.cluster.abilities.work.set_many(names, change, call.user, only_of(person)) if names else ()
    by_name = dict(zip(names, results, strict=True))
    answers = [
        _array_answer(call, each, by_name) if each.is_array else _answer(call, each.name, by_name) for each in named
    ]
    changed = [result.after for result in results if isinstance(result, ChangedWorkload)][-1:]  # they come in order
    await wait_until_visible(live, lambda: all(live.state.workloads.get(each.name) in (each, None) for each in changed))
    return BulkOutcome(answers, list(dict.fromkeys(warnings)))


def _answer(call: EndpointCall, name: str, results: Mapping[str, ChangedWorkload | KaiwoError]) -> ActionResult:
    result = results[name]
    if isinstance(result, KaiwoError):
        call.trail.refused(f"workload/{name}", str(result))
        if len(results) <= MAX_HINTS:
            result = with_meant_name(call.context.live.cluster, name, result)
        return ActionResult(name, "", translate(result).problem)
    call.trail.changed(f"workload/{name}", _summary(result.before), _summary(result.after))
    changes = _changes(result)
    return ActionResult(name, f"workload {name}: {', '.join(changes) if changes else 'unchanged'}")


def _array_answer(
    call: EndpointCall, named: NamedTasks, results: Mapping[str, ChangedWorkload | KaiwoError]
) -> ActionResult:
    """One answer, and one record of the audit, for all tasks of an array."""
    changed = [result for name in named.workloads if isinstance(result := results[name], ChangedWorkload)]
    refused = [result for name in named.workloads if isinstance(result := results[name], KaiwoError)]
    if not changed:
        error = refused[0] if refused else NotFoundError(f"no task of the {named.array_words} is unfinished")
        call.trail.refused(f"workload/{named.name}", str(error))
        return ActionResult(named.name, "", translate(error).problem)
    call.trail.changed(f"workload/{named.name}", _summary(changed[0].before), _summary(changed[0].after))
    what = ", ".join(_changes(changed[0])) or "unchanged"
    more = f"; {len(refused):,} refused, the first because {refused[0]}" if refused else ""
    return ActionResult(named.name, f"{named.array_words}: {what} ({len(changed):,} tasks){more}")


def _read(body: bytes) -> SetForm:
    try:
        form = msgspec.convert(read_json(body), SetForm)
    except msgspec.ValidationError:
        raise invalid(
            f"write 1 to {MAX_NAMES} names and the fields to change, such as "
            '{"names": ["default/train"], "fields": {"priority": 5}}'
        ) from None
    if not form.fields:
        raise invalid(f"fields is empty; it can have: {', '.join(CHANGEABLE)}")
    return form


def _summary(workload: Workload) -> dict[str, object]:
    """What the audit keeps: the summary of a submission, and every setting that is not at its default."""
    settings = {field.short: getattr(workload, field.name) for field in FIELDS}
    defaults = {field.short: field.default for field in FIELDS}
    kept = {short: value for short, value in settings.items() if value != defaults[short]}
    return {**workload_summary(workload), "hold": workload.held, **kept}


def _changes(changed: ChangedWorkload) -> list[str]:
    """`priority 0 -> 5`, `time 2 h -> none`."""
    before, after = changed
    found = []
    for field in fields(before):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old == new or field.name in _FOLLOWS_A_RELEASE:
            continue
        if field.name == "roles":
            found += _resizes(before, after)
        elif field.name == "held":
            found.append("held" if new else "released")
        else:
            short = next((each.short for each in FIELDS if each.name == field.name), field.name)
            found.append(f"{short} {_words(short, old)} -> {_words(short, new)}")
    return found


def _resizes(before: Workload, after: Workload) -> list[str]:
    """`size 4 GPUs -> 2 GPUs`, `model H100 -> any`."""
    found = []
    for what, of in (("size", describe_workload), ("model", _models)):
        if of(before) != of(after):
            found.append(f"{what} {of(before)} -> {of(after)}")
    return found


def _models(workload: Workload) -> str:
    return ",".join(dict.fromkeys(model for role in workload.roles for model in role.request.gpu_models)) or "any"


def _words(short: str, value: object) -> str:
    kind = _SETTINGS[short].kind if short in _SETTINGS else None
    if not value and short in _SETTINGS and kind is not ValueKind.BOOLEAN:
        return "none"
    if kind is ValueKind.DURATION and isinstance(value, int):
        return duration(value)
    if kind is ValueKind.TIMESTAMP and isinstance(value, int):
        return clock_words(value)
    if kind is ValueKind.BANDWIDTH and isinstance(value, int):
        return rate(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


ROUTES = (
    Route(
        "POST",
        "/workloads/set",
        f"Change workloads in place: {', '.join(('priority', 'queue', 'hold', *SIZE_FIELDS))} and other settings.",
        set_workloads,
        BulkOutcome,
        body=Body((JSON,), SetForm),
    ),
)
