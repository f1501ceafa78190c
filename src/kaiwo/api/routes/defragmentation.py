"""Routes that plan moves of running work, run a plan, show how far it is, and abort it."""

import msgspec

from kaiwo.api.context import wait_until_visible
from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, invalid
from kaiwo.api.http.request_body import Body
from kaiwo.api.presenters.defragmentation_view import plan_view, status_view
from kaiwo.api.presenters.fragments_view import fragments_of
from kaiwo.api.views.defragmentation import DefragmentationForm, DefragmentationView, MovePlanView
from kaiwo.decide.defragment.move_hours import begun_lately, next_open_s, rate_allows_s
from kaiwo.model.defragmentation import DefragmentationGoal, DefragmentationRun, GoalKind, RunState, begun_s
from kaiwo.runtime.defragmentation.defragmentation import NamedPlan


async def get_defragmentation(call: EndpointCall) -> DefragmentationView:
    live = call.context.live
    now_s = live.cluster.now_s()
    status, rate_s = call.context.defragmentation.status(), now_s
    if status is not None:
        lately_s = begun_lately([*status.run.recent_s, *begun_s(status.progress)], now_s)
        rate_s = rate_allows_s(lately_s, live.policy.moves_per_hour, now_s)
    return status_view(status, live.policy, now_s, next_open_s(live.policy.move_hours, rate_s))


async def plan_moves(call: EndpointCall) -> MovePlanView:
    form = _form(call)
    if form.plan:
        raise invalid("name what the moves are for, not a plan", "plan")
    return await _view(call, await _plan(call, form))


async def run_moves(call: EndpointCall) -> DefragmentationView:
    form, service = _form(call), call.context.defragmentation
    if form.plan and form != DefragmentationForm(plan=form.plan):
        raise invalid("a plan says what the moves are for; name nothing else", "plan")
    found = service.known(form.plan) if form.plan else await _plan(call, form)
    before = service.control.current()
    run = await service.start(found, call.user)
    call.trail.changed(f"defragmentation/{run.name}", None if before is None else before.name, _told(run))
    await _until_known(call, run)
    return await get_defragmentation(call)


async def abort_moves(call: EndpointCall) -> DefragmentationView:
    run = await call.context.defragmentation.abort(call.user)
    call.trail.changed(f"defragmentation/{run.name}", "running", run.state.value)
    await _until_known(call, run)
    return await get_defragmentation(call)


async def _plan(call: EndpointCall, form: DefragmentationForm) -> NamedPlan:
    goal, live = _goal(form), call.context.live
    if form.workload:
        name = live.cluster.record(form.workload).workload.name
        state = live.state  # it may have been submitted just now
        await wait_until_visible(live, lambda: state.backlog.is_queued(name) or name in state.pods)
    return await call.context.defragmentation.plan(goal)


async def _until_known(call: EndpointCall, run: DefragmentationRun) -> None:
    def is_known() -> bool:
        known = call.context.live.state.defragmentation.run
        return (
            known is not None
            and known.name == run.name
            and (run.state is RunState.RUNNING or known.state is not RunState.RUNNING)
        )

    await wait_until_visible(call.context.live, is_known)


async def _view(call: EndpointCall, found: NamedPlan) -> MovePlanView:
    live = call.context.live
    return plan_view(found, await live.ask(fragments_of), live.policy)


def _told(run: DefragmentationRun) -> dict[str, object]:
    moves = [f"{move.workload}/{move.pod}: {move.source} to {move.node}" for step in run.steps for move in step.moves]
    return {"goal": run.goal.kind.value, "moves": moves}


def _form(call: EndpointCall) -> DefragmentationForm:
    try:
        return msgspec.json.decode(call.body, type=DefragmentationForm)
    except msgspec.MsgspecError as error:
        raise invalid(f"the body does not say what the moves are for: {error}") from None


def _goal(form: DefragmentationForm) -> DefragmentationGoal:
    if bool(form.workload) + bool(form.free_nodes) + form.balance > 1:
        raise invalid("name one of workload, free_nodes and balance; one plan has one purpose")
    if form.free_nodes < 0 or form.most_moves < 0:
        raise invalid("free_nodes and most_moves must be 0 or more")
    kind = GoalKind.WAITING
    if form.workload:
        kind = GoalKind.WORKLOAD
    elif form.free_nodes:
        kind = GoalKind.NODES
    elif form.balance:
        kind = GoalKind.BALANCE
    return DefragmentationGoal(kind, form.workload, form.free_nodes, form.most_moves)


FORM = Body((JSON,), DefragmentationForm)

ROUTES = (
    Route("GET", "/defragmentation", "How far the last run of moves is, move by move.", get_defragmentation,
          DefragmentationView),
    Route("POST", "/defragmentation/plan", "What moves of running work would bring and cost; it changes nothing.",
          plan_moves, MovePlanView, body=FORM, errors=(404,)),
    Route("POST", "/defragmentation/run", "Carry out a plan of moves, within the policy's limits.", run_moves,
          DefragmentationView, 201, body=FORM, errors=(404,)),
    Route("POST", "/defragmentation/abort", "Begin no more moves; those under way end.", abort_moves,
          DefragmentationView, errors=(404,)),
)  # fmt: skip
