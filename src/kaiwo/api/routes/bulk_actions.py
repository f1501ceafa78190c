"""Routes that cancel, hold, release or requeue many workloads in one request.

In:    names.   Out: for each name what was done, or the Problem that the single call would have answered with.
Never: lets one refusal stop the others.
"""

import msgspec

from kaiwo.api.endpoint import Call, Route
from kaiwo.api.http.problems import JSON, invalid, translate
from kaiwo.api.http.request_body import Body, read_object
from kaiwo.api.routes.workloads import ACTION_DONE
from kaiwo.api.views.bulk_actions import MOST_NAMES, ActionResult, BulkOutcome, NamesForm
from kaiwo.clusters.protocol import Action
from kaiwo.model.errors import KaiwoError


async def cancel(call: Call) -> BulkOutcome:
    """Stop them for good."""
    return await _act_on_all(call, "cancel")


async def hold(call: Call) -> BulkOutcome:
    """Keep them from starting."""
    return await _act_on_all(call, "hold")


async def release(call: Call) -> BulkOutcome:
    """Let them start again."""
    return await _act_on_all(call, "release")


async def requeue(call: Call) -> BulkOutcome:
    """Let them wait again, from the start."""
    return await _act_on_all(call, "requeue")


async def _act_on_all(call: Call, verb: Action) -> BulkOutcome:
    names = _read_names(call.body)
    refusals = await call.context.live.cluster.abilities.work.change_many(verb, names, call.user)
    return BulkOutcome([_answer(verb, *each) for each in zip(names, refusals, strict=True)])


def _answer(verb: str, name: str, refusal: KaiwoError | None) -> ActionResult:
    if refusal is None:
        return ActionResult(name, f"workload {name} {ACTION_DONE[verb]}")
    return ActionResult(name, "", translate(refusal).problem)


def _read_names(body: bytes) -> list[str]:
    try:
        form = msgspec.convert(read_object(body), NamesForm)
    except msgspec.ValidationError:
        raise invalid(
            f'names must be a list of 1 to {MOST_NAMES} workloads, such as {{"names": ["default/train"]}}'
        ) from None
    return list(dict.fromkeys(form.names))


NAMES = Body((JSON,), NamesForm)
ROUTES = (
    Route(
        "POST", "/workloads/cancel", "Cancel many workloads, with a result for each.", cancel, BulkOutcome, body=NAMES
    ),
    Route("POST", "/workloads/hold", "Hold many workloads.", hold, BulkOutcome, body=NAMES),
    Route("POST", "/workloads/release", "Release many workloads.", release, BulkOutcome, body=NAMES),
    Route("POST", "/workloads/requeue", "Requeue many workloads.", requeue, BulkOutcome, body=NAMES),
)
