"""Build the scheduler's Pod for each placed pod (node, phase, devices, amounts), and index pods by their slots."""

from collections.abc import Mapping

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.affinity_index import AffinityIndex
from kaiwo.clusters.kubernetes.cache.device_grants import DeviceGrants, Shares, fills_until_s
from kaiwo.clusters.kubernetes.cache.in_flight import InFlight
from kaiwo.clusters.kubernetes.cache.node_cache import NodeCache
from kaiwo.clusters.kubernetes.cache.rank_annotations import rank_of
from kaiwo.clusters.kubernetes.cache.unguarded_status import ObservedStarts
from kaiwo.clusters.kubernetes.cache.workload_unit import UnitPods
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.model.affinity import affinity_of_nomination
from kaiwo.model.workload import NO_RANK, Phase, Pod


class PlacedPods:
    """Builds placed pods. `extended_scheduler`: the scheduler whose pods get their devices from our extender."""

    def __init__(
        self, scheduler: str, in_flight: InFlight, nodes: NodeCache, grants: DeviceGrants, affinity: AffinityIndex
    ) -> None:
        self.extended_scheduler = ""
        self.starts = ObservedStarts()
        self._scheduler, self._in_flight, self._nodes = scheduler, in_flight, nodes
        self._grants, self._affinity = grants, affinity

    def of(self, workload: str, slot: str, pod: CachedPod) -> Pod:
        """The placed pod for one that is bound, about to be bound, or nominated by another scheduler."""
        start = self._in_flight.starts.get(pod.uid)
        if not pod.node and start is not None:
            self.starts.assume(pod.uid)
            assumed = self.at(workload, slot, pod, Phase.ASSUMED, start.node, start.devices)
            return replace(assumed, until_s=start.until_s, rank=start.rank)
        if not pod.node:  # another scheduler has nominated it: it does not run yet, so no pod can be near it
            placed = self.of(workload, slot, replace(pod, node=pod.nominated_node))
            return replace(placed, neighbours=affinity_of_nomination(placed.neighbours))
        is_ours = pod.scheduler == self._scheduler
        is_leaving = pod.is_terminating or pod.uid in self._in_flight.evictions
        phase = Phase.RELEASING if is_ours and is_leaving else Phase.RUNNING
        node, has_agent = self._nodes.nodes.get(pod.node), pod.node in self._nodes.with_agent
        return self.at(
            workload, slot, pod, phase, pod.node, self._grants.of(pod, node, self.is_granted(pod), has_agent)
        )

    def is_granted(self, pod: CachedPod) -> bool:
        """Its devices come from us: as its scheduler, or as the extender of its scheduler."""
        return pod.scheduler in (self._scheduler, self.extended_scheduler)

    def at(self, workload: str, slot: str, pod: CachedPod, phase: Phase, node: str, devices: Shares) -> Pod:
        request = pod.spec.request
        return Pod(
            workload,
            slot,
            node,
            phase,
            tuple(devices),
            request.cpu_milli,
            request.memory_mib,
            request.extended,
            self.starts.since_s(pod),
            self._affinity.affinity_of(pod),
            fills_until_s(pod) if pod.scheduler == self._scheduler else 0,
            request.beside,
            request.share_with,
            rank=rank_of(pod) if pod.scheduler == self._scheduler else NO_RANK,
        )


class SlotIndex:
    """Which pod has which slot of its workload."""

    def __init__(self, pods: Mapping[Key, CachedPod], in_flight: InFlight) -> None:
        self.units: dict[str, UnitPods] = {}  # by workload
        self._pods, self._in_flight = pods, in_flight

    def find(self, workload: str, slot: str) -> CachedPod | None:
        unit = self.units.get(workload)
        return None if unit is None else self._pods.get(unit.by_slot.get(slot, ("", "")))

    def pods(self, workload: str) -> dict[str, CachedPod]:
        by_slot = self.units[workload].by_slot if workload in self.units else {}
        return {slot: self._pods[key] for slot, key in by_slot.items() if key in self._pods}

    def waiting(self, workload: str) -> list[CachedPod]:
        """The pods of a workload that are neither bound nor in flight, in the order of their slots."""
        return [pod for _, pod in sorted(self.pods(workload).items()) if not self.is_fixed(pod)]

    def is_fixed(self, pod: CachedPod) -> bool:
        """Bound, or its Binding is in flight."""
        return bool(pod.node) or pod.uid in self._in_flight.starts
