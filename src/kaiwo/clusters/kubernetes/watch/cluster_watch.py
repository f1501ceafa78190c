"""Watch every kind of object that matters, and keep the cluster cache up to date.

In:    a Client and the cache.   Out: the cache, changed by each list and each watch event.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.disruption_budgets import PATH as BUDGETS
from kaiwo.clusters.kubernetes.cache.disruption_budgets import BudgetObject, read_budget
from kaiwo.clusters.kubernetes.cache.priority_classes import PATH as PRIORITIES
from kaiwo.clusters.kubernetes.cache.queue_history import read_queue_status
from kaiwo.clusters.kubernetes.client import Change, Client, Resource
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import (
    PARTITIONING_PLANS,
    QUEUES,
    RESERVATIONS,
    TOPOLOGIES,
    FoundQueue,
    FoundReservation,
    PlanObject,
    ReservationObject,
    TopologyObject,
    find_queue,
    find_reservation,
)
from kaiwo.clusters.kubernetes.decode.pod_decoder import Key, PodDecoder
from kaiwo.clusters.kubernetes.watch.informer_set import InformerSet
from kaiwo.clusters.kubernetes.watch.object_handler import KindHandler, ObjectHandler, leaving_out
from kaiwo.clusters.kubernetes.watch.operator_kinds import OperatorKinds
from kaiwo.model.partitioning_plan import PartitioningPlan

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
WRITTEN_BY_LEADER = (PODS, QUEUES)  # what the next leader must know is on these
DROP_UNUSED_AFTER = 50_000  # deleted pods, before the decoder drops what no pod shares any more


class ReservationStore(Protocol):
    """Keeps the KaiwoReservations."""

    def upsert(self, found: FoundReservation) -> None: ...

    def delete(self, found: FoundReservation) -> None: ...


class PlanStore(Protocol):
    """Reads and keeps the PartitioningPlans."""

    def read(self, item: PlanObject) -> PartitioningPlan | None: ...

    def upsert(self, plan: PartitioningPlan) -> None: ...

    def delete(self, plan: PartitioningPlan) -> None: ...


class TopologyStore(Protocol):
    """Keeps the KaiwoTopologies."""

    def upsert(self, item: TopologyObject) -> None: ...

    def delete(self, item: TopologyObject) -> None: ...


class ClusterWatch:
    """The watches of one cluster. `on_change` is called after each change of the cache."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        decoder: PodDecoder,
        reservations: ReservationStore,
        plans: PlanStore,
        topologies: TopologyStore,
        on_change: Callable[[], None],
        report: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self._cache, self._decoder, self._report = cache, decoder, report
        self._reservations, self._plans, self._topologies = reservations, plans, topologies
        self._set = InformerSet(client, on_change, report)
        self._operator_kinds = OperatorKinds(client, cache, self._set, report)
        self._discovery: asyncio.Task[None] | None = None
        self.informers = self._set.informers
        self.wait_for_sync = self._set.wait_for_sync

    def start(self) -> None:
        """Begin to watch."""
        cache, add = self._cache, self._set.add
        add(PodHandler(Resource(PODS, wire_objects.Pod), cache, self._decoder))
        add(_named(NODES, wire_objects.Node, cache.upsert_node, lambda node: cache.delete_node(_name(node))))
        add(self._namespaces())
        for handler in self._volumes():
            add(handler)
        queues: Resource[wire_objects.QueueObject] = Resource(QUEUES, wire_objects.QueueObject)
        add(KindHandler(queues, find_queue, _key, self._upsert_queue, self._delete_queue), is_optional=True)
        add(self._budgets())
        add(_named(PRIORITIES, wire_objects.PriorityClass, cache.priorities.upsert, cache.priorities.delete))
        reservations: Resource[ReservationObject] = Resource(RESERVATIONS, ReservationObject)
        store = self._reservations
        add(KindHandler(reservations, find_reservation, _key, store.upsert, store.delete), is_optional=True)
        plans: Resource[PlanObject] = Resource(PARTITIONING_PLANS, PlanObject)
        add(KindHandler(plans, self._plans.read, _key, self._plans.upsert, self._plans.delete), is_optional=True)
        add(_named(TOPOLOGIES, TopologyObject, self._topologies.upsert, self._topologies.delete), is_optional=True)
        self._discovery = asyncio.create_task(self._operator_kinds.run(), name="kaiwo-discovery")

    @property
    def has_synced(self) -> bool:
        return self._set.has_synced

    @property
    def left_out(self) -> int:
        """Objects that could not be used, since the start."""
        return self._set.left_out

    async def relist(self) -> None:
        """Until everything that a leader writes is known as it is now, or later."""
        await self._set.relist(WRITTEN_BY_LEADER)

    async def close(self) -> None:
        if self._discovery is not None:
            self._discovery.cancel()
            await asyncio.gather(self._discovery, return_exceptions=True)
        await self._set.close()

    def _namespaces(self) -> ObjectHandler:
        upsert = self._cache.affinity_index.upsert_namespace
        return _named(
            NAMESPACES,
            wire_objects.Namespace,
            lambda item: upsert(_name(item), item.metadata.labels or {}),
            lambda item: upsert(_name(item), None),
        )

    def _volumes(self) -> list[ObjectHandler]:
        """A change of a claim, a volume or a class touches the pods that wait for one."""

        def touching(change: Callable[[Any], bool]) -> Callable[[Any], None]:
            return lambda item: self._cache.touch_claim_users() if change(item) else None

        volumes = self._cache.volumes
        return [
            KindHandler(Resource[Any](path, kind), _same, _namespaced_name, touching(upsert), touching(delete))
            for path, kind, upsert, delete in (
                (CLAIMS, wire_objects.Claim, volumes.upsert_claim, volumes.delete_claim),
                (VOLUMES, wire_objects.PersistentVolume, volumes.upsert_volume, volumes.delete_volume),
                (STORAGE_CLASSES, wire_objects.StorageClass, volumes.upsert_class, volumes.delete_class),
            )
        ]

    def _budgets(self) -> ObjectHandler:
        """A change of a budget lets the pods that it covers be evicted again."""
        cache, budgets = self._cache, self._cache.budgets
        return KindHandler(
            Resource[BudgetObject](BUDGETS, BudgetObject),
            read_budget,
            lambda budget: (budget.namespace, budget.name),
            lambda budget: cache.retry_evictions(budgets.upsert(budget, cache.pods.values())),
            lambda budget: cache.retry_evictions(budgets.delete(budget, cache.pods.values())),
        )

    def _upsert_queue(self, found: FoundQueue) -> None:
        queues, name = self._cache.queue_cache, found.name
        queues.generations[name] = found.item.metadata.generation
        self._cache.queue_events(queues.history.upsert(name, read_queue_status(found.item.status)))
        if found.value is not None:
            self._cache.queue_events(queues.upsert(found.value))
        elif queues.upsert_fault(name, found.fault):
            self._report("queue-unreadable", level="warning", queue=name, error=found.fault)

    def _delete_queue(self, found: FoundQueue) -> None:
        self._cache.queue_events(self._cache.queue_cache.delete(found.name))


class PodHandler:
    """Decodes pods into the cache, which keeps them: they are not kept twice."""

    def __init__(self, resource: Resource[wire_objects.Pod], cache: ClusterCache, decoder: PodDecoder) -> None:
        self.resource, self._cache, self._decoder = resource, cache, decoder
        self._listed: set[Key] = set()
        self._deleted = 0
        self.is_listed = False

    def on_list_start(self) -> None:
        """Forget the pages of a list that broke off."""
        self._listed = set()

    def on_page(self, items: Sequence[wire_objects.Pod]) -> None:
        """One page of a list."""
        for item in items:
            # A pod that cannot be used exists all the same: what was known of it holds its devices.
            self._listed.add((item.metadata.namespace, item.metadata.name))
            with leaving_out(self.resource, item):
                self._cache.upsert_pod(self._decoder.decode(item))

    def on_list_end(self, version: str) -> None:
        """Delete what is not in the list, unless it is newer than the list."""
        listed, self._listed = self._listed, set()
        list_version = int(version)
        for pod in [pod for key, pod in self._cache.pods.items() if key not in listed and pod.version <= list_version]:
            self._cache.delete_pod(pod)
        self.is_listed = True

    def on_changes(self, changes: Sequence[Change[wire_objects.Pod]]) -> None:
        """Changes from the watch."""
        for item, is_gone in changes:
            with leaving_out(self.resource, item):
                pod = self._decoder.decode(item)
                (self._cache.delete_pod if is_gone else self._cache.upsert_pod)(pod)
            self._deleted += is_gone
        if self._deleted >= DROP_UNUSED_AFTER:
            self._deleted = 0
            self._decoder.drop_unused(self._cache.pods.values())


def _named(
    path: str, kind: type[Any], upsert: Callable[[Any], None], delete: Callable[[Any], None]
) -> KindHandler[Any, Any]:
    """Objects without a namespace that are used as they come."""
    return KindHandler(Resource[Any](path, kind), _same, _name, upsert, delete)


def _same(item: Any) -> Any:
    return item


def _name(item: Any) -> str:
    return str(item.metadata.name)


def _namespaced_name(item: Any) -> tuple[str, str]:
    return item.metadata.namespace, item.metadata.name


def _key(found: Any) -> str:
    return str(found.name)
