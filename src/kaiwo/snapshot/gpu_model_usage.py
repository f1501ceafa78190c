"""How much queues use of single GPU models, where some queue bounds them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Workload
from kaiwo.snapshot.node_table import Allocation
from kaiwo.snapshot.queue_table import ModelUsage

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


def milli_by_model(nodes: Mapping[str, Node], models: Sequence[str], held: Iterable[Allocation]) -> tuple[int, ...]:
    """What these hold of each model; empty where no model is bounded."""
    if not models:
        return ()
    found = dict.fromkeys(models, 0)
    for each in held:
        for model, milli in _models_of(nodes, each):
            if model in found:
                found[model] += milli
    return tuple(found.values())


def usage_by_model(state: "ClusterState") -> list[ModelUsage]:
    bounded = {model for queue in state.queue_objects.values() for model in queue.gpu_models}
    found = []
    for name in sorted({*state.pods, *state.nominations}) if bounded else ():
        workload = state.workloads.get(name)
        held: list[Allocation] = [*state.pods.get(name, {}).values(), *state.nominations.get(name, {}).values()]
        for each in held:
            payer = _payer(workload, each)
            for model, milli in _models_of(state.node_objects, each) if payer is not None else ():
                if payer is not None and model in bounded:
                    found.append(ModelUsage(payer.queue, model, milli, payer.is_non_preemptible))
    return found


class _Payer(NamedTuple):
    queue: str
    is_non_preemptible: bool


def _payer(workload: Workload | None, held: Allocation) -> _Payer | None:
    """Who is charged for it, as in `allocations`; None: nobody."""
    if isinstance(held, Pod) and held.charged_to:
        return _Payer(held.charged_to, True) if held.phase is not Phase.DONE else None
    if workload is None or (isinstance(held, Pod) and held.phase not in (Phase.ASSUMED, Phase.RUNNING)):
        return None
    return _Payer(workload.queue, not workload.preemptible)


def only_model(want: Request, known: Sequence[str]) -> str:
    """The one GPU model that suits a request: it names no other, or the cluster has no other. Else empty."""
    models = want.gpu_models or (tuple(known) if want.gpus else ())
    return models[0] if len(models) == 1 else ""


def _models_of(nodes: Mapping[str, Node], held: Allocation) -> list[tuple[str, int]]:
    node = nodes.get(held.node)
    models = {gpu.id: gpu.model for gpu in node.gpus} if node is not None else {}
    return [(models[share.gpu], share.charge_milli) for share in held.devices if share.gpu in models]
