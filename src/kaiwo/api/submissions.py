"""Routes that take work in: a form, or YAML with many documents. All of it is done, or nothing.

In:    what a person wrote.   Out: what was done, one line an object.
Never: parses on the event loop; a large YAML text takes seconds.
"""

import asyncio
import getpass
from collections.abc import Iterable
from typing import Any

from kaiwo.api.body import Body, read_object
from kaiwo.api.params import Param
from kaiwo.api.problems import JSON
from kaiwo.api.putting import check_before, put_together
from kaiwo.api.routes import Call, Route
from kaiwo.api.views import Outcome
from kaiwo.manifests import Defaults, Parsed, Submission, parse, parse_all
from kaiwo.model.errors import ConfigError, NotFoundError
from kaiwo.model.program import State
from kaiwo.model.queue import Queue

YAML = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
DRY_RUN = Param("dry_run", "flag", "Only say what would happen.", False)
DEMO_LABEL = ("kaiwo.ai/demo", "true")
STOP_S = 10.0  # how long a removal waits for cancelled work to be gone


async def submit(call: Call) -> Outcome:
    """One workload, or an array of them, from a form."""
    return await _put(call, await _parse(call, _parse_form))


async def apply(call: Call) -> Outcome:
    """Everything that the documents describe."""
    return await _put(call, await _parse(call, parse_all))


async def delete(call: Call) -> Outcome:
    """Everything that the documents name."""
    parsed = await _parse(call, parse_all)
    cluster = call.context.live.cluster
    names = [workload.name for workload, _ in parsed.submissions]
    queues = [queue.name for queue in parsed.queues]
    _check_there(call, names, queues)
    done = await _remove_workloads(call, names)
    for name in reversed(_parents_first(parsed.queues)):
        await cluster.remove_queue(name.name, who=call.who)
        done.append(f"queue {name.name} deleted")
    return Outcome(done, list(parsed.warnings), names)


async def clear_demo(call: Call) -> Outcome:
    """The sample work that `kaiwo up --demo` brought."""
    key, value = DEMO_LABEL
    records = call.context.live.cluster.records()
    names = [record.workload.name for record in records if record.workload.labels.get(key) == value]
    done = await _remove_workloads(call, names)
    return Outcome(done or ["there is no demo work to remove"], [], names)


async def _parse(call: Call, parse: Any) -> Parsed:
    live = call.context.live
    defaults = Defaults(submitted_s=live.cluster.now_s(), user=_owner())
    return await asyncio.to_thread(parse, call.body, defaults)


async def _put(call: Call, parsed: Parsed) -> Outcome:
    dry_run, picture = call.query["dry_run"], call.context.live.picture
    queues = _parents_first(parsed.queues)
    before = {queue.name: picture.queue_objects.get(queue.name) for queue in queues}
    if dry_run:
        check_before(call.context.live, queues, parsed.submissions)
    else:
        async with call.context.putting:
            await put_together(call.context.live, queues, parsed.submissions, call.who)
    suffix = " (dry run)" if dry_run else ""
    done = [f"queue {queue.name} {_verb(before[queue.name], queue)}{suffix}" for queue in queues]
    names = [workload.name for workload, _ in parsed.submissions]
    done += [f"workload {name} submitted{suffix}" for name in names]
    return Outcome(done, list(parsed.warnings), [] if dry_run else names)


async def _remove_workloads(call: Call, names: list[str]) -> list[str]:
    """Cancel what lives, wait until it is gone, and forget it all."""
    cluster, live = call.context.live.cluster, call.context.live
    for name in names:
        if not cluster.record(name).state.is_over:
            await cluster.cancel(name, who=call.who)
    loop = asyncio.get_running_loop()
    until = loop.time() + STOP_S
    while left := [name for name in names if _lives(cluster, name)]:
        if loop.time() > until:
            break
        seen = live.revision
        try:
            async with asyncio.timeout(0.5):
                await live.changed(seen)
        except TimeoutError:
            continue
    over = [name for name in names if name not in set(left)]
    known = [name for name in over if _state(cluster, name) is not None]
    if known:
        await cluster.forget_ended(known, who=call.who)
    return [f"workload {name} deleted" for name in over] + [f"workload {name} is stopping" for name in left]


def _parse_form(body: bytes, defaults: Defaults) -> Parsed:
    return parse(read_object(body), defaults)


def _lives(cluster: Any, name: str) -> bool:
    state = _state(cluster, name)
    return state is not None and not state.is_over


def _state(cluster: Any, name: str) -> State | None:
    try:
        state: State = cluster.record(name).state
    except NotFoundError:
        return None
    return state


def _check_there(call: Call, workloads: Iterable[str], queues: Iterable[str]) -> None:
    """Nothing is deleted when one of the names is wrong."""
    live = call.context.live
    for name in workloads:
        live.cluster.record(name)
    for name in queues:
        if name not in live.picture.queue_objects:
            raise NotFoundError(f"queue {name} does not exist")


def _parents_first(queues: Iterable[Queue]) -> list[Queue]:
    by_name: dict[str, Queue] = {}
    for queue in queues:
        if queue.name in by_name:
            raise ConfigError(f"queue {queue.name} is there twice; keep one of them", "name")
        by_name[queue.name] = queue
    ordered: dict[str, Queue] = {}

    def visit(queue: Queue, path: tuple[str, ...]) -> None:
        parent = by_name.get(queue.parent)
        if parent is not None and parent.name not in ordered and parent.name not in path:
            visit(parent, (*path, parent.name))
        ordered[queue.name] = queue

    for queue in by_name.values():
        if queue.name not in ordered:
            visit(queue, (queue.name,))
    return list(ordered.values())


def _verb(before: Queue | None, after: Queue) -> str:
    return "created" if before is None else "unchanged" if before == after else "changed"


def _owner() -> str:
    """Who has the token is who started this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


FORM = Body((JSON,), Submission)
DOCUMENTS = Body(YAML, {"type": "string", "minLength": 1})

ROUTES = (
    Route("POST", "/workloads", "Submit a workload.", submit, Outcome, 201, params=(DRY_RUN,), body=FORM),
    Route(
        "POST", "/manifests", "Apply every document, all or nothing.", apply, Outcome, params=(DRY_RUN,), body=DOCUMENTS
    ),
    Route("POST", "/manifests/delete", "Delete what the documents name.", delete, Outcome, body=DOCUMENTS, may=(404,)),
    Route("DELETE", "/demo", "Remove the demo's work.", clear_demo, Outcome),
)
