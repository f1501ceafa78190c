"""Routes that list and show workloads, explain why one waits, and cancel, hold, release or requeue one."""

import asyncio
import contextlib
from itertools import islice

from kaiwo import explain
from kaiwo.api.endpoint import Call, Route
from kaiwo.api.http.problems import did_you_mean, quote
from kaiwo.api.presenters.list_pages import LISTINGS, WORKLOAD_PARAMS
from kaiwo.api.presenters.node_view import unhealthy_devices
from kaiwo.api.presenters.workload_view import KUBERNETES, WAITS, obstacle_view, workload_detail
from kaiwo.api.views import ChangeView, Outcome, Page, WhyView, WorkloadDetail, WorkloadView
from kaiwo.clusters.protocol import Action
from kaiwo.manifests.values.names import ARRAY_LABEL
from kaiwo.model.errors import NotFoundError
from kaiwo.model.obstacle import Obstacle, Reason, WhyVerdict
from kaiwo.model.reservation import clock_words
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState
from kaiwo.runtime.loop.loop_protocol import Live
from kaiwo.runtime.overview.workload_table import GPU
from kaiwo.runtime.partitioning.wait_sentences import wait_sentence
from kaiwo.snapshot.cluster_state import ClusterState

RETRY_S = 1.0
MOST_NEAR = 1_000  # names to compare with an unknown one: takes some milliseconds
NAMED = "/workloads/{namespace}/{name}"
ACTION_DONE = {"cancel": "cancelled", "hold": "held", "release": "released", "requeue": "requeued"}


async def list_workloads(call: Call) -> Page[WorkloadView]:
    """The workloads that match."""
    listing = LISTINGS["workloads"]
    pick = listing.pick(call.query)
    await call.context.overview.fresh()
    return listing.page(call.context.overview, pick)


async def get_workload(call: Call) -> WorkloadDetail:
    """All there is to say of one."""
    record = find_record(call)
    live = call.context.live
    rows = await call.context.overview.fresh()
    name, now_s = record.workload.name, live.cluster.now_s()
    at = rows.find(name)
    gpu_milli = 0 if at is None else int(rows.table[GPU, at])
    obstacles: tuple[Obstacle, ...] = ()
    if record.state in WAITS:
        obstacles = await live.ask(lambda state: explain.obstacles_of(state, name, live.policy, now_s))
    views = [obstacle_view(each, live.cluster.kind) for each in obstacles]
    return workload_detail(live.state, record, gpu_milli, views, now_s)


async def cancel(call: Call) -> Outcome:
    """Stop it for good."""
    return await _act(call, "cancel")


async def hold(call: Call) -> Outcome:
    """Keep it from starting."""
    return await _act(call, "hold")


async def release(call: Call) -> Outcome:
    """Let it start again."""
    return await _act(call, "release")


async def requeue(call: Call) -> Outcome:
    """Let it wait again, from the start."""
    return await _act(call, "requeue")


async def why(call: Call) -> WhyView:
    """Why it waits, and what would start it now."""
    record = find_record(call)
    live = call.context.live
    name, now_s = record.workload.name, live.cluster.now_s()

    found = await _explain(live, name, now_s) if record.state in WAITS else None
    if found is None and record.state is WorkloadState.HELD and record.message:
        answer = f"{record.workload.name.removeprefix('default/')} is waiting: {record.message}"
        verdict = WhyVerdict.BLOCKED
        return WhyView(name, record.state, answer, [], 0, 0, None, record.message, now_s, verdict=verdict)
    if found is None:
        answer = plain_answer(record) + unhealthy_devices(live.state, name)
        return WhyView(
            name, record.state, answer, [], 0, 0, None, "It is not waiting.", now_s, verdict=WhyVerdict.NOT_WAITING
        )
    kind, change = live.cluster.kind, found.change
    if change is not None and kind == KUBERNETES:
        change = explain.propose_in_kubernetes(change)
    return WhyView(
        workload=name,
        state=record.state,
        answer=found.answer,
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
    )


async def _explain(live: Live, name: str, now_s: int) -> explain.Why | None:
    """The whole answer. Of work that the next cycle tries it is asked again after that cycle, but not for ever."""

    def question(state: ClusterState) -> explain.Why | None:
        return explain.why(state, name, live.policy, now_s) if name in state.workloads else None

    found = await live.ask(question)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RETRY_S):
            while found is not None and any(each.obstacle.reason is Reason.NOT_TRIED for each in found.obstacles):
                last = live.last_cycle
                while live.last_cycle is last:
                    await live.changed(live.revision)
                found = await live.ask(question)
    return found


def find_record(call: Call) -> WorkloadRecord:
    """The workload that the address names."""
    name = full_name(call)
    try:
        record = call.context.live.cluster.record(name)
    except NotFoundError:
        way_out = _among_tasks(call) or _near(call) or "it may have ended and been removed; see: kaiwo get workloads"
        raise NotFoundError(f"there is no workload {quote(name)}; {way_out}") from None
    return record


def _among_tasks(call: Call) -> str:
    """Where to look when the name is that of an array."""
    array, namespace = call.path["name"], call.path["namespace"]
    for record in call.context.live.cluster.records():
        workload = record.workload
        if workload.labels.get(ARRAY_LABEL) == array and workload.name.startswith(f"{namespace}/"):
            return f"it is an array: name one of its tasks, see: kaiwo get workloads -l {ARRAY_LABEL}={array}"
    return ""


def _near(call: Call) -> str:
    """Another that may be meant: of the same name in another namespace, or of nearly the same name in this one."""
    asked, own = call.path["name"], f"{call.path['namespace']}/"
    names = [record.workload.name for record in call.context.live.cluster.records()]
    elsewhere = next((name for name in names if name.endswith(f"/{asked}")), "")
    if elsewhere:
        return f"did you mean '{elsewhere}'?"
    here = (name.removeprefix(own) for name in names if name.startswith(own) and abs(len(name) - len(own + asked)) < 3)
    hint = did_you_mean(asked, islice(here, MOST_NEAR))
    return hint.removeprefix("; ") if "did you mean" in hint else ""


def full_name(call: Call) -> str:
    """`namespace/name`."""
    return f"{call.path['namespace']}/{call.path['name']}"


def plain_answer(record: WorkloadRecord) -> str:
    """For work that does not wait."""
    state = record.state.value
    if record.state.is_over:
        return f"It is not waiting: it {_ended(state)}" + (f" ({record.message})." if record.message else ".")
    why = f" ({record.message})" if record.state is WorkloadState.STOPPING and record.message else ""
    expires_s = record.workload.expires_s
    until = f", and its allocation is granted until {clock_words(expires_s)}" if expires_s else ""
    return f"It is not waiting: it is {state}{why}{until}."


def _ended(state: str) -> str:
    return f"was {state}" if state == "cancelled" else state


async def _act(call: Call, verb: Action) -> Outcome:
    name = find_record(call).workload.name
    await call.context.live.cluster.abilities.work.change(verb, name, call.user)
    return Outcome([f"workload {name} {ACTION_DONE[verb]}"], [], [name])


ROUTES = (
    Route("GET", "/workloads", "List workloads.", list_workloads, Page[WorkloadView], params=WORKLOAD_PARAMS),
    Route("GET", NAMED, "All details of one workload.", get_workload, WorkloadDetail, errors=(404,)),
    Route("DELETE", NAMED, "Cancel it.", cancel, Outcome, errors=(404,)),
    Route("POST", NAMED + "/hold", "Keep it from starting.", hold, Outcome, errors=(404,)),
    Route("POST", NAMED + "/release", "Undo hold.", release, Outcome, errors=(404,)),
    Route("POST", NAMED + "/requeue", "Stop it if it is running, and queue it again.", requeue, Outcome, errors=(404,)),
    Route("GET", NAMED + "/why", "Why it waits, and what would start it now.", why, WhyView, errors=(404,)),
)
