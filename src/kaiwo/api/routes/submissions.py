"""Routes that submit workloads and apply or delete manifests, each all or nothing.

A workload that exists unchanged is left alone; one that differs is refused.
Never: parses on the event loop; a large YAML text takes seconds.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import fields, replace

from kaiwo.api.context import wait_until_visible
from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON
from kaiwo.api.http.request_body import Body
from kaiwo.api.routes.consoles import INPUT_FROM, with_input
from kaiwo.api.routes.partitions import drop_plans, put_plans
from kaiwo.api.routes.reservations import DRY_RUN, STOP_RUNNING, change_verb, check_effects, put_words
from kaiwo.api.routes.what_if import would_happen
from kaiwo.api.security.own_work import check_change, check_documents, check_submissions, only_of
from kaiwo.api.views.answers import Outcome
from kaiwo.clusters.protocol import Cluster
from kaiwo.gpus.isolation_grades import is_mps_on_amd
from kaiwo.manifests import SUBMISSION_FORM, ManifestDefaults, Parsed, parse, parse_all, read_json
from kaiwo.manifests.values.names import ARRAY_LABEL, all_tasks
from kaiwo.model.errors import ConfigError, NotFoundError, RefusedError
from kaiwo.model.queue import Queue, is_same_queue
from kaiwo.model.queue_validation import check_queue_tree
from kaiwo.model.reservation import Reservation, is_same_reservation
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import Program, WorkloadRecord, WorkloadState
from kaiwo.plugins.guarded_calls import PluginFaultError, PluginStoppedError
from kaiwo.runtime.loop.divide_replicas import divided, is_same_total
from kaiwo.runtime.overview.workload_table import asked_milli
from kaiwo.snapshot.cluster_state import ClusterState

YAML = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
STOP_S = 10.0  # how long a removal waits for cancelled work to be gone
# Fields that the cluster itself changes.
_SET_BY_CLUSTER = (
    "submitted_s", "after", "after_failed", "not_before_s", "not_before_why", "checkpoint_s", "broken_since_s",
    "may_go", "learned_s", "array_slots", "image",
)  # fmt: skip
_WORDS = {
    "roles": "its pods and their requests",
    "kind": "its type",
    "preemptible": "whether it may be preempted",
    "held": "whether it is held (kaiwo hold and kaiwo release change that)",
    "stops_others": "whether others are preempted for it",
    "groups": "its sub-groups",
    "env": "its environment",
    "secret_env": "its secret environment",
    "simulated_s": "its simulated run time",
    "is_interactive": "whether a terminal is its input",
}


def find_unchanged(cluster: Cluster, items: Sequence[tuple[Workload, Program]]) -> list[str]:
    """The names of workloads that exist as described. Refuses one that differs."""
    names = []
    for workload, program in items:
        record = _record(cluster, workload.name)
        # Work that is stopping may be about to end for good: the cluster knows, and says so.
        if record is None or record.state.is_over or record.state is WorkloadState.STOPPING:
            continue
        program = _with_same_secrets(cluster, workload.name, record.program, program)
        if other := _differences(record.workload, workload) + _differences(record.program, program):
            raise ConfigError(
                f"workload {workload.name} exists, is {record.state}, and differs in: {', '.join(other)}. Workloads "
                f"cannot be changed in place: run kaiwo cancel {workload.name} and apply this again, or rename it",
                "name",
            )
        names.append(workload.name)
    return names


def _with_same_secrets(cluster: Cluster, name: str, there: Program, given: Program) -> Program:
    """Equal values are sealed differently each time."""
    sealer = cluster.abilities.secrets
    if sealer is None or not there.secret_env or not sealer.are_same(name, there.secret_env, given.secret_env):
        return given
    return replace(given, secret_env=there.secret_env)


def _record(cluster: Cluster, name: str) -> WorkloadRecord | None:
    try:
        return cluster.record(name)
    except NotFoundError:
        return None


def _differences(there: Workload | Program, given: Workload | Program) -> list[str]:
    if isinstance(there, Workload) and isinstance(given, Workload):
        # `expires: 2h` counts from when it is read, and reading takes a moment.
        later_s = (given.expires_s - given.submitted_s) - (there.expires_s - there.submitted_s)
        if given.expires_s and there.expires_s and abs(later_s) <= 1:
            given = replace(given, expires_s=there.expires_s)
        given = replace(given, **{name: getattr(there, name) for name in _SET_BY_CLUSTER})
    names = [field.name for field in fields(there)]
    other = [name for name in names if getattr(there, name) != getattr(given, name)]
    return [_WORDS.get(name) or f"its {name.removesuffix('_s').replace('_', ' ')}" for name in other]


async def submit(call: EndpointCall) -> Outcome:
    with _counting_refusals(call):
        parsed = await _parse(call, _parse_form)
        _check_rights(call, parsed)
        if input_from := call.query["input_from"]:
            parsed = with_input(call.context.live.cluster, parsed, input_from)
        return await _put(call, await _divide(call, parsed))


async def apply(call: EndpointCall) -> Outcome:
    with _counting_refusals(call):
        parsed = await _parse(call, parse_all)
        _check_rights(call, parsed)
        parsed = await _divide(call, parsed)
        return await _put(call, parsed, find_unchanged(call.context.live.cluster, parsed.submissions))


async def delete(call: EndpointCall) -> Outcome:
    parsed = await _parse(call, parse_all)
    check_documents(call.context.access, call.person, parsed)
    live = call.context.live
    names = [workload.name for workload, _ in parsed.submissions]
    queues = [queue.name for queue in parsed.queues]
    reservations = [reservation.name for reservation in parsed.reservations]
    before = _objects_before(call, parsed)
    work = live.cluster.abilities.work
    stopping = await work.remove(queues, names, call.user, reservations, only_of(call.person))
    for name, old in before.items():
        call.trail.changed(name, old, action=f"remove-{name.partition('/')[0]}")
    done = [*await _wait_until_stopped(call, names, stopping), *(f"queue {name} deleted" for name in queues)]
    done += [f"reservation {name} deleted" for name in reservations]
    done += await drop_plans(call, parsed.partitioning)
    known, reserved = live.state.queue_objects, live.state.reservations.objects
    await wait_until_visible(live, lambda: known.keys().isdisjoint(queues) and reserved.keys().isdisjoint(reservations))
    return Outcome(done, list(parsed.warnings), names)


async def clear_demo(call: EndpointCall) -> Outcome:
    from kaiwo.clusters.local.demo_workloads import clear_demo

    live = call.context.live
    cleared = await clear_demo(live.cluster, who=call.user)
    for name in (*(f"workload/{each}" for each in cleared.names), *(f"queue/{each}" for each in cleared.queues)):
        call.trail.changed(name)
    done = await _wait_until_stopped(call, cleared.names, cleared.stopping)
    done += [f"queue {name} deleted" for name in cleared.queues]
    await wait_until_visible(live, lambda: not any(name in live.state.queue_objects for name in cleared.queues))
    return Outcome(done or ["there are no demo workloads to remove"], [], list(cleared.names))


@contextlib.contextmanager
def _counting_refusals(call: EndpointCall) -> Iterator[None]:
    try:
        yield
    except (ConfigError, RefusedError):
        call.context.live.allocations.refused()
        raise


def _check_rights(call: EndpointCall, parsed: Parsed) -> None:
    """Before anything is compared with what exists: a refusal must not describe the work of others."""
    access, live = call.context.access, call.context.live
    check_documents(access, call.person, parsed)
    workloads = [workload for workload, _ in parsed.submissions]
    check_submissions(access, call.person, workloads, live.state.queue_objects)
    for workload in workloads:
        record = _record(live.cluster, workload.name)
        if record is not None and not record.state.is_over:
            check_change(access, call.person, record)


async def _parse(call: EndpointCall, parse: Any) -> Parsed:
    defaults = ManifestDefaults(submitted_s=call.context.live.cluster.now_s(), user=call.user)
    parsed: Parsed = await asyncio.to_thread(parse, call.body, defaults)
    if parsed.topologies:
        raise RefusedError(
            f"KaiwoTopology '{parsed.topologies[0].name}' is not changed through the API; start Kaiwo with "
            "`kaiwo up --topology kaiwo=FILE`, or use kubectl on Kubernetes",
            "kind",
        )
    if not any(program.secret_env for _, program in parsed.submissions):
        return parsed
    return await asyncio.to_thread(_seal, parsed, call.context.live.cluster)


def _seal(parsed: Parsed, cluster: Cluster) -> Parsed:
    """Encrypt secret values before any other code sees them."""
    sealer = cluster.abilities.secrets
    if sealer is None:
        raise RefusedError("this cluster keeps no secret values; use a Secret of Kubernetes", "secretEnv")
    sealed = [
        (workload, replace(program, secret_env=sealer.seal(workload.name, program.secret_env)))
        for workload, program in parsed.submissions
    ]
    return replace(parsed, submissions=tuple(sealed))


async def _divide(call: EndpointCall, parsed: Parsed) -> Parsed:
    """Divide GPUs in total over pods as there is room now. Work that exists keeps the division that it has."""
    if not parsed.totals:
        return parsed
    live = call.context.live
    now_s = live.cluster.now_s()
    faults: list[PluginFaultError] = []

    def divide(state: ClusterState) -> tuple[tuple[Workload, Program], ...]:
        items = []
        for workload, program in parsed.submissions:
            if (total := parsed.totals.get(workload.name)) is not None:
                record = _record(live.cluster, workload.name)
                is_there = record is not None and not record.state.is_over
                if record is not None and is_there and is_same_total(record.workload, workload, total):
                    workload = replace(workload, roles=record.workload.roles)
                else:
                    workload = divided(workload, total, state, live.policy, live.plugins, now_s, faults.append)
            items.append((workload, program))
        return tuple(items)

    submissions = await call.ask(divide)
    if blamed := [(each.plugin, each.detail) for each in faults if not isinstance(each, PluginStoppedError)]:
        await live.ask(lambda _: call.context.plugins.set_aside(blamed))
    return replace(parsed, submissions=submissions)


async def _put(call: EndpointCall, parsed: Parsed, there_already: Sequence[str] = ()) -> Outcome:
    dry_run, live = call.query["dry_run"], call.context.live
    queues, items = parsed.queues, [item for item in parsed.submissions if item[0].name not in there_already]
    reservations = parsed.reservations
    _refuse_mps_on_amd(live.state, items)
    work = live.cluster.abilities.work
    there = {each.name: each for each in work.reservations()} if reservations else {}
    effects = await check_effects(call, reservations) if reservations else []
    before = await work.put(queues, items, who=call.user, dry_run=dry_run, reservations=reservations)
    suffix = " (dry run)" if dry_run else ""
    verbs = [change_verb(old is None, is_same_queue(queue, old)) for queue, old in zip(queues, before, strict=True)]
    done = [f"queue {queue.name} {verb}{suffix}" for queue, verb in zip(queues, verbs, strict=True)]
    done += [put_words(each, there.get(each.name)) + suffix for each in reservations]
    if not dry_run:
        _trail_put(
            call, zip(queues, before, strict=True), items, [(each, there.get(each.name)) for each in reservations]
        )
    done += await put_plans(call, parsed.partitioning, dry_run)
    names = [workload.name for workload, _ in parsed.submissions]
    words = {name: "unchanged" if name in there_already else "submitted" for name in names}
    arrays = {workload.name: array for workload, _ in parsed.submissions if (array := _array_of(workload))}
    done += [f"workload {name} {word}{suffix}" for name, word in words.items() if name not in arrays]
    tasks = Counter((arrays[name], word) for name, word in words.items() if name in arrays)
    done += [f"array {array} {word} with {number:,} tasks{suffix}" for (array, word), number in tasks.items()]
    would = await would_happen(call, [workload for workload, _ in items]) if dry_run and items else []
    if not dry_run:
        known = live.state.queue_objects
        reserved = live.state.reservations.objects

        def is_visible() -> bool:
            has_queues = all(is_same_queue(queue, known.get(queue.name)) for queue in queues)
            return has_queues and all(each.name in reserved for each in reservations)

        await wait_until_visible(live, is_visible)
    on_queues = await asyncio.to_thread(_queue_warnings, dict(live.state.queue_objects), queues) if queues else []
    warnings = [*parsed.warnings, *effects, *on_queues, *([] if dry_run else _ambiguous_names(live.cluster, items))]
    return Outcome(done, warnings, names, would)


def _array_of(workload: Workload) -> str:
    array = workload.labels.get(ARRAY_LABEL)
    return f"{workload.name.partition('/')[0]}/{array}" if array else ""


def _trail_put(
    call: EndpointCall,
    queues: Iterable[tuple[Queue, Queue | None]],
    items: Sequence[tuple[Workload, Program]],
    reservations: Iterable[tuple[Reservation, Reservation | None]],
) -> None:
    for queue, old in queues:
        if not is_same_queue(queue, old):
            call.trail.changed(f"queue/{queue.name}", old, queue, "put-queue")
    for reservation, before in reservations:
        if not is_same_reservation(reservation, before):
            call.trail.changed(f"reservation/{reservation.name}", before, reservation, "put-reservation")
    for workload, _ in items:
        call.trail.changed(f"workload/{workload.name}", None, workload_summary(workload), "submit")


def workload_summary(workload: Workload) -> dict[str, Any]:
    """What the audit keeps of a workload: neither its command nor its environment, which may hold secrets."""
    pods = sum(role.count for role in workload.roles)
    return {
        "queue": workload.queue,
        "user": workload.user,
        "priority": workload.priority,
        "pods": pods,
        "gpu_milli": asked_milli(workload),
    }


def _objects_before(call: EndpointCall, parsed: Parsed) -> dict[str, Any]:
    """The objects that the documents name, as they are now."""
    live = call.context.live
    found: dict[str, Any] = {}
    for workload, _ in parsed.submissions:
        record = _record(live.cluster, workload.name)
        old = {**workload_summary(record.workload), "state": record.state} if record is not None else None
        found[f"workload/{workload.name}"] = old
    for queue in parsed.queues:
        found[f"queue/{queue.name}"] = live.state.queue_objects.get(queue.name)
    for reservation in parsed.reservations:
        found[f"reservation/{reservation.name}"] = live.state.reservations.objects.get(reservation.name)
    return found


def _refuse_mps_on_amd(state: ClusterState, items: Sequence[tuple[Workload, Program]]) -> None:
    """Refuse MPS where all GPUs are AMD's: waiting would not help."""
    for workload, _ in items:
        if any(is_mps_on_amd(role.request, state.node_objects.values()) for role in workload.roles):
            raise RefusedError(
                f'workload {workload.name}: its isolation is "mps", which does not exist on AMD GPUs, and this cluster '
                "has no others; write time-slicing, cu-mask or partition"
            )


async def _wait_until_stopped(call: EndpointCall, names: Sequence[str], stopping: Sequence[str]) -> list[str]:
    """Wait until removed work has stopped, and forget it. Work that takes longer stays, as cancelled."""
    cluster, live = call.context.live.cluster, call.context.live
    loop = asyncio.get_running_loop()
    until = loop.time() + STOP_S
    while (left := {name for name in stopping if _is_alive(cluster, name)}) and loop.time() < until:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await live.changed(live.revision)
    over = [name for name in stopping if name not in left and _record(cluster, name) is not None]
    if over:
        await cluster.abilities.work.forget_ended(over, call.user, only_of(call.person))
    return [f"workload {name} {'is stopping' if name in left else 'deleted'}" for name in names]


def _is_alive(cluster: Cluster, name: str) -> bool:
    record = _record(cluster, name)
    return record is not None and not record.state.is_over


def _ambiguous_names(cluster: Cluster, items: Sequence[tuple[Workload, Program]]) -> list[str]:
    """Warn about work that waits for a name which both a workload and an array have."""
    found = []
    for workload, _ in items:
        record = _record(cluster, workload.name) if workload.after else None
        awaited = record.workload.after if record else ()
        for other in workload.after:
            if other in awaited and all_tasks(other) in awaited:
                found.append(
                    f"workload {workload.name} waits for workload {other} and for every task of array {other}: "
                    "both have that name"
                )
    return found


def _queue_warnings(known: Mapping[str, Queue], queues: Sequence[Queue]) -> list[str]:
    """Warn about settings of these queues, and of their parents, that do not work as they read."""
    fresh = {queue.name: queue for queue in queues}
    concerned = {name for queue in queues for name in (queue.name, queue.parent)}
    findings = check_queue_tree([*(queue for name, queue in known.items() if name not in fresh), *queues])
    return [finding.sentence for finding in findings if not finding.is_error and finding.queue in concerned]


def _parse_form(body: bytes, defaults: ManifestDefaults) -> Parsed:
    return parse(read_json(body), defaults)


FORM = Body((JSON,), SUBMISSION_FORM)
DOCUMENTS = Body(YAML, {"type": "string", "minLength": 1})

ROUTES = (
    Route("POST", "/workloads", "Submit a workload.", submit, Outcome, 201, params=(DRY_RUN, INPUT_FROM), body=FORM),
    Route(
        "POST",
        "/manifests",
        "Apply every document, all or nothing.",
        apply,
        Outcome,
        params=(DRY_RUN, STOP_RUNNING),
        body=DOCUMENTS,
    ),
    Route(
        "POST", "/manifests/delete", "Delete what the documents name.", delete, Outcome, body=DOCUMENTS, errors=(404,)
    ),
    Route("DELETE", "/demo", "Remove the demo's work and queues.", clear_demo, Outcome),
)
