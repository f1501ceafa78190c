"""Watch every kind of object that Kaiwo reads, and keep the cluster cache up to date."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.disruption_budgets import PATH as BUDGETS
from kaiwo.clusters.kubernetes.cache.disruption_budgets import BudgetObject, read_budget
from kaiwo.clusters.kubernetes.cache.priority_classes import PATH as PRIORITIES
from kaiwo.clusters.kubernetes.cache.queue_history import read_queue_status
from kaiwo.clusters.kubernetes.client import Change, Client, Resource
from kaiwo.clusters.kubernetes.client.informer import KindHandler, ObjectHandler, as_is, leaving_out
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import (
    PARTITIONING_PLANS,
    QUEUES,
    RESERVATIONS,
    TOPOLOGIES,
    PlanObject,
    QueueObject,
    ReservationObject,
    TopologyObject,
    read_queue,
)
from kaiwo.clusters.kubernetes.decode.pod_decoder import Key, PodDecoder
from kaiwo.clusters.kubernetes.watch.informer_set import InformerSet
from kaiwo.clusters.kubernetes.watch.operator_kinds import OperatorKinds
from kaiwo.model.gpus.partitioning_plan import PartitioningPlan

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
WRITTEN_BY_LEADER = (PODS, QUEUES)  # these carry what the next leader must know
DROP_UNUSED_AFTER = 50_000  # deleted pods, after which the decoder drops what no pod uses any longer

StoredT = TypeVar("StoredT", contravariant=True)


class ObjectStore(Protocol[StoredT]):
    def upsert(self, found: StoredT, /) -> None: ...

    def delete(self, found: StoredT, /) -> None: ...


class PlanStore(ObjectStore[PartitioningPlan], Protocol):
    def read(self, item: PlanObject) -> PartitioningPlan | None: ...


class ClusterWatch(InformerSet):
    """The informers of one cluster. `on_change` is called after each change of the cache."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        decoder: PodDecoder,
        reservations: ObjectStore[ReservationObject],
        plans: PlanStore,
        topologies: ObjectStore[TopologyObject],
        on_change: Callable[[], None],
        report: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        super().__init__(client, on_change, report)
        self._cache, self._decoder = cache, decoder
        self._reservations, self._plans, self._topologies = reservations, plans, topologies
        self._operator_kinds = OperatorKinds(client, cache, self, report)
        self._discovery: asyncio.Task[None] | None = None

    def start(self) -> None:
        for handler in self._required_kinds():
            self.add(handler)
        for handler in self._optional_kinds():
            self.add(handler, is_optional=True)
        self._discovery = asyncio.create_task(self._operator_kinds.run(), name="kaiwo-discovery")

    async def close(self) -> None:
        if self._discovery is not None:
            self._discovery.cancel()
            await asyncio.gather(self._discovery, return_exceptions=True)
        await super().close()

    def _required_kinds(self) -> list[ObjectHandler]:
        cache, budgets, volumes = self._cache, self._cache.budgets, self._cache.volumes
        upsert_namespace = cache.affinity_index.upsert_namespace
        classes = Resource(PRIORITIES, wire_objects.PriorityClass)

        def touching(change: Callable[[Any], bool]) -> Callable[[Any], None]:
            """A change of a claim, a volume or a storage class touches the pods that wait for one."""
            return lambda item: cache.touch_claim_users() if change(item) else None

        return [
            PodHandler(Resource(PODS, wire_objects.Pod), cache, self._decoder),
            KindHandler(Resource(NODES, wire_objects.Node), as_is, cache.upsert_node, cache.delete_node),
            KindHandler(
                Resource(NAMESPACES, wire_objects.Namespace),
                as_is,
                lambda item: upsert_namespace(item.metadata.name, item.metadata.labels or {}),
                lambda item: upsert_namespace(item.metadata.name, None),
            ),
            *(
                KindHandler(Resource[Any](path, kind), as_is, touching(upsert), touching(delete))
                for path, kind, upsert, delete in (
                    (CLAIMS, wire_objects.Claim, volumes.upsert_claim, volumes.delete_claim),
                    (VOLUMES, wire_objects.PersistentVolume, volumes.upsert_volume, volumes.delete_volume),
                    (STORAGE_CLASSES, wire_objects.StorageClass, volumes.upsert_class, volumes.delete_class),
                )
            ),
            KindHandler(
                Resource(BUDGETS, BudgetObject),
                read_budget,
                lambda budget: cache.retry_evictions(budgets.upsert(budget, cache.pods.values())),
                lambda budget: cache.retry_evictions(budgets.delete(budget, cache.pods.values())),
            ),
            KindHandler(
                classes,
                as_is,
                lambda found: cache.touch(cache.priorities.upsert(found, cache.pods.values())),
                lambda found: cache.touch(cache.priorities.delete(found, cache.pods.values())),
            ),
        ]

    def _optional_kinds(self) -> list[ObjectHandler]:
        """Kinds whose definitions may not be installed."""
        reservations, plans, topologies = self._reservations, self._plans, self._topologies
        return [
            KindHandler(Resource(QUEUES, QueueObject), as_is, self._upsert_queue, self._delete_queue),
            KindHandler(Resource(RESERVATIONS, ReservationObject), as_is, reservations.upsert, reservations.delete),
            KindHandler(Resource(PARTITIONING_PLANS, PlanObject), plans.read, plans.upsert, plans.delete),
            KindHandler(Resource(TOPOLOGIES, TopologyObject), as_is, topologies.upsert, topologies.delete),
        ]

    def _upsert_queue(self, item: QueueObject) -> None:
        """Keep a queue even if it cannot be read: its pods must not run without a limit."""
        queues, name, queue = self._cache.queue_cache, item.metadata.name, read_queue(item)
        queues.generations[name] = item.metadata.generation
        self._cache.queue_events(queues.history.upsert(name, read_queue_status(item.status)))
        if not isinstance(queue, str):
            self._cache.queue_events(queues.upsert(queue))
        elif queues.upsert_fault(name, queue):
            self._report("queue-unreadable", level="warning", queue=name, error=queue)

    def _delete_queue(self, item: QueueObject) -> None:
        self._cache.queue_events(self._cache.queue_cache.delete(item.metadata.name))


class PodHandler:
    """Decodes pods into the cache, which keeps them: they are not kept twice."""

    def __init__(self, resource: Resource[wire_objects.Pod], cache: ClusterCache, decoder: PodDecoder) -> None:
        self.resource, self._cache, self._decoder = resource, cache, decoder
        self._listed: set[Key] = set()
        self._deleted = 0
        self.is_listed = False

    def on_list_start(self) -> None:
        self._listed = set()

    def on_page(self, items: Sequence[wire_objects.Pod]) -> None:
        for item in items:
            # A pod that cannot be decoded still exists: what was known of it keeps holding its devices.
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
        for item, is_gone in changes:
            with leaving_out(self.resource, item):
                pod = self._decoder.decode(item)
                (self._cache.delete_pod if is_gone else self._cache.upsert_pod)(pod)
            self._deleted += is_gone
        if self._deleted >= DROP_UNUSED_AFTER:
            self._deleted = 0
            self._decoder.drop_unused(self._cache.pods.values())
