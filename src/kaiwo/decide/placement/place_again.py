"""Place pods of a workload again that lose their places, near its pods that stay.

In:    the pods, and what they ask for.   Out: a place for each of them, or None, with nothing changed.
Levels bind them to the domains of the pods that stay; where none stays, any domain will do.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kaiwo.decide.placement.place_by_level import LevelSearch, PodBatch
from kaiwo.decide.placement.place_pods import Placed, Placer, place_pods
from kaiwo.decide.placement.queue_limits import Payer
from kaiwo.model.network.level_groups import WorkloadLevels, levels_of, role_numbers
from kaiwo.model.plan import DomainChoice
from kaiwo.model.request import Request
from kaiwo.model.workload import ACTIVE_PHASES, Role, Workload, role_name, role_of
from kaiwo.snapshot.cluster_state import ClusterState


class DisplacedPods(NamedTuple):
    """Pods of one workload that need other places. The working copy has released what they held."""

    workload: Workload
    pods: Sequence[str]
    request_of: Callable[[Role], Request]


class PlacedAgain(NamedTuple):
    places: dict[str, Placed]
    domains: Sequence[DomainChoice] = ()


def place_again(placer: Placer, state: ClusterState, displaced: DisplacedPods) -> PlacedAgain | None:
    queue = placer.working.queues.row.get(displaced.workload.queue)
    if queue is None:
        return None
    payer = Payer(queue, is_non_preemptible=not displaced.workload.preemptible)
    with placer.working.trial() as attempt:
        if (levels := levels_of(displaced.workload)) is None:
            found = _place_anywhere(placer, payer, displaced)
        else:
            found = _place_by_level(placer, payer, levels, state, displaced)
        if found is None:
            return None
        rows = placer.working.nodes.row
        placer.working.move(displaced.workload.name, [rows[each.node] for each in found.places.values()], +1)
        attempt.keep()
        return found


def _place_anywhere(placer: Placer, payer: Payer, displaced: DisplacedPods) -> PlacedAgain | None:
    found: dict[str, Placed] = {}
    for name in displaced.pods:
        want = displaced.request_of(role_of(displaced.workload, name))
        placed = place_pods(placer, payer, -1, want, 1)
        if placed is None:
            return None
        found[name] = placed[0]
    return PlacedAgain(found)


def _place_by_level(
    placer: Placer, payer: Payer, levels: WorkloadLevels, state: ClusterState, displaced: DisplacedPods
) -> PlacedAgain | None:
    workload, pods = displaced.workload, frozenset(displaced.pods)
    search = LevelSearch(placer, payer, workload.name, levels)
    numbers, rows = role_numbers(workload), placer.working.nodes.row
    for name, pod in sorted(state.pods.get(workload.name, {}).items()):
        number = numbers.get(role_name(name))
        if name not in pods and number is not None and pod.phase in ACTIVE_PHASES and pod.node in rows:
            search.add_pod(number, name, rows[pod.node])
    batches: list[PodBatch] = []
    for number, role in enumerate(workload.roles):
        names = [name for name in displaced.pods if role_name(name) == role.name]
        if names:
            batches += search.batches(number, names, -1, displaced.request_of(role))
    placed = search.place(batches)
    if placed is None:
        return None
    places = {
        name: each
        for batch, found in zip(batches, placed, strict=True)
        for name, each in zip(batch.names, found, strict=True)
    }
    return PlacedAgain(places, search.choices())
