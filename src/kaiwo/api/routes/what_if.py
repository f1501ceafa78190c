"""The route for what-if questions. It changes nothing, so whoever may read may ask."""

import msgspec

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, invalid
from kaiwo.api.http.request_body import Body
from kaiwo.api.views.what_if import QueueForecastView, WhatIfView
from kaiwo.manifests.policy_file import read_policy
from kaiwo.model.events import WorkloadChanged
from kaiwo.runtime.forecasting.forward_jobs import ForwardOutcome, ForwardQueueOutcome
from kaiwo.runtime.forecasting.what_if_changes import WhatIfForm, events_of

HOUR_S = 3600


async def what_if(call: EndpointCall) -> WhatIfView:
    try:
        form = msgspec.json.decode(call.body, type=WhatIfForm)
    except msgspec.MsgspecError as error:
        raise invalid(f"the body is not a what-if question: {error}") from None
    live, now_s = call.context.live, call.context.live.cluster.now_s()
    policy = read_policy(form.policy) if form.policy.strip() else None
    changes = await live.ask(lambda state: events_of(form, state, call.user, now_s, policy or live.policy))
    found = await call.context.overview.forward.what_if(changes, policy)
    assert found.before is not None
    assert found.after is not None
    names = [change.workload.name for change in changes if isinstance(change, WorkloadChanged)]
    added = {name: found.added.get(name, 0) for name in names}
    return _view(found.before, found.after, now_s, added)


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
