"""Routes about failures, and about the work that recovers from them."""

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.presenters.recovery_view import recovery_view
from kaiwo.api.views.recovery import RecoveryView


async def get_recovery(call: EndpointCall) -> RecoveryView:
    live = call.context.live
    past, now_s = tuple(live.recoveries.past), live.cluster.now_s()
    return await call.ask(lambda state: recovery_view(state, past, now_s))


ROUTES = (
    Route("GET", "/recovery", "What failed, who lost pods, what is done, and how long it took.", get_recovery,
          RecoveryView),
)  # fmt: skip
