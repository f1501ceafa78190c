"""The route for what-if questions, and the answer of a dry run. They change nothing, so whoever may read may ask."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from kaiwo import explain
from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, invalid
from kaiwo.api.http.request_body import Body
from kaiwo.api.views.what_if import QueueForecastView, WhatIfView
from kaiwo.model.amounts import rounded_duration
from kaiwo.model.errors import KaiwoError
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.workload import Workload
from kaiwo.runtime.forecasting.forward_jobs import ForwardOutcome, ForwardQueueOutcome
from kaiwo.runtime.forecasting.what_if_changes import WhatIfForm, events_of, read_question

HOUR_S = 3600
MAX_TRIED = 20  # workloads of one dry run
MAX_NAMED = 3
DRY_RUN_S = 5.0  # how long a dry run waits for expected starts


async def what_if(call: EndpointCall) -> WhatIfView:
    try:
        form = msgspec.json.decode(call.body, type=WhatIfForm)
    except msgspec.MsgspecError as error:
        raise invalid(f"the body is not a what-if question: {error}") from None
    live, now_s = call.context.live, call.context.live.cluster.now_s()
    question = await asyncio.to_thread(read_question, form, call.user, now_s)
    async with call.context.turns.of(call.person):
        changes = await live.ask(lambda state: events_of(question, state, live.policy))
        found = await call.context.overview.forward.what_if(changes, question.policy, call.person.is_owner)
    assert found.before is not None
    assert found.after is not None
    names = [change.workload.name for change in changes if isinstance(change, WorkloadChanged)]
    added = {name: found.added.get(name, 0) for name in names}
    return _view(found.before, found.after, now_s, added)


async def would_happen(call: EndpointCall, workloads: Sequence[Workload]) -> list[str]:
    """Whether and when each would start, and whom it would stop; many of them together."""
    live, now_s = call.context.live, call.context.live.cluster.now_s()
    # The queues of the same files exist only once these are applied.
    tried = [each for each in workloads if each.queue in live.state.queue_objects][:MAX_TRIED]
    if not tried:
        return []
    tried = [replace(each, submitted_s=each.submitted_s or now_s) for each in tried]
    ask = partial(explain.try_submission, workloads=tried, policy=live.policy, now_s=now_s, plugins=live.plugins)
    async with call.context.turns.of(call.person):
        outcomes = await live.ask(ask)
        waiting = [each for each in outcomes if not each.nodes]
        is_expected = waiting and not any(each.held for each in tried)
        added = await _expected_starts(call, tried) if is_expected else {}
    if len(tried) > MAX_NAMED:  # an array, or many files: how many start, and what the first of the others waits for
        starting = f"{len(tried) - len(waiting)} of the first {len(tried)} would start now"
        return [starting, *(_trial_words(each, added.get(each.workload, 0), now_s) for each in waiting[:1])]
    words = [_trial_words(each, added.get(each.workload, 0), now_s) for each in outcomes]
    return words + ([outcomes[0].choice] if len(outcomes) == 1 and outcomes[0].choice else [])


async def _expected_starts(call: EndpointCall, tried: Sequence[Workload]) -> Mapping[str, int]:
    """Those that come in time: the rest of the answer does not wait for them."""
    changes = [WorkloadChanged(each) for each in tried]
    with contextlib.suppress(TimeoutError, KaiwoError):
        async with asyncio.timeout(DRY_RUN_S):
            return (await call.context.overview.forward.what_if(changes, None, call.person.is_owner)).added
    return {}


def _trial_words(outcome: explain.TrialSubmission, expected_s: int, now_s: int) -> str:
    """`train would start now on node-1, and stop lab-7`."""
    name = explain.short_name(outcome.workload)
    if outcome.nodes:
        where = ", ".join(outcome.nodes[:4]) + (" and more" if len(outcome.nodes) > 4 else "")
        stopped = [explain.short_name(each) for each in outcome.stopped]
        others = f" and {len(stopped) - 3} more" if len(stopped) > 3 else ""
        stops = f"; for that, {', '.join(stopped[:3])}{others} would be stopped" if stopped else ""
        return f"{name} would start now on {where}{stops}"
    when = f"; it is expected to start in {rounded_duration(expected_s - now_s)}" if expected_s > now_s else ""
    return f"{name} would wait: {outcome.reason}{when}"


def _view(before: ForwardOutcome, after: ForwardOutcome, now_s: int, added: dict[str, int]) -> WhatIfView:
    none = ForwardQueueOutcome("", 0, 0, 0, 0, 0)
    old, new = ({each.queue: each for each in outcome.queues} for outcome in (before, after))
    pairs = [(name, old.get(name, none), new.get(name, none)) for name in sorted({*old, *new})]
    return WhatIfView(
        as_of_s=now_s,
        until_s=[before.reached_s, after.reached_s],
        is_whole=[before.is_whole, after.is_whole],
        gpus=[before.gpus, after.gpus],
        utilisation=[_utilisation(before, now_s), _utilisation(after, now_s)],
        queues=[
            QueueForecastView(
                name,
                [one.waiting, two.waiting],
                [one.started, two.started],
                [one.wait_s, two.wait_s],
                [round(one.gpu_s / HOUR_S, 2), round(two.gpu_s / HOUR_S, 2)],
                [one.evictions, two.evictions],
            )
            for name, one, two in pairs
        ],
        added=added,
        unknown=after.unknown,
    )


def _utilisation(outcome: ForwardOutcome, now_s: int) -> float:
    possible = outcome.gpus * (outcome.reached_s - now_s)
    return round(sum(each.gpu_s for each in outcome.queues) / possible, 4) if possible else 0.0


ROUTES = (
    Route("POST", "/what-if", "What a change of quotas, nodes, policy or work would bring; it changes nothing.",
          what_if, WhatIfView, body=Body((JSON,), WhatIfForm)),
)  # fmt: skip
