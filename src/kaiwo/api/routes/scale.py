"""The route of the scale signal, for autoscalers to read."""

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.views.scale import HourNeedView, ModelNeedView, ScaleView
from kaiwo.forecast.scale_signal import ModelNeed


async def get_scale(call: EndpointCall) -> ScaleView:
    as_of_s = call.context.live.cluster.now_s()
    return ScaleView(as_of_s, [_view(need, as_of_s) for need in await call.context.demand.scale()])


def _view(need: ModelNeed, now_s: int) -> ModelNeedView:
    missing_s = [now_s] * bool(need.add_now) + [max(now_s, hour.at_s) for hour in need.hours if hour.add_nodes]
    return ModelNeedView(
        model=need.model,
        nodes=need.nodes,
        gpus=need.gpus,
        gpus_per_node=need.gpus_per_node,
        held_gpus=need.held_gpus,
        waiting_gpus=need.waiting_gpus,
        add_nodes=need.add_now,
        add_nodes_later=max((hour.add_nodes for hour in need.hours), default=0),
        add_nodes_at_s=min(missing_s, default=0),
        hours_seen=need.hours_seen,
        hours=[HourNeedView(each.at_s, each.expected_gpus, each.high_gpus, each.add_nodes) for each in need.hours],
        may_go=list(need.may_go),
    )


ROUTES = (
    Route("GET", "/scale", "How many nodes of which GPU model are needed when, and which may go.", get_scale,
          ScaleView),
)  # fmt: skip
