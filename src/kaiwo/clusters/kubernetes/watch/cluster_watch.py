"""Follow every kind of object that matters, and say when all of them have been read once.

In:    a Client and the Books.   Out: the books kept up to date.
Never: calls itself warm before each kind was listed whole: nothing may be decided on half a picture.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.disruption_budgets import PATH as BUDGETS
from kaiwo.clusters.kubernetes.cache.disruption_budgets import BudgetObject, read_budget
from kaiwo.clusters.kubernetes.cache.priority_classes import PATH as PRIORITIES
from kaiwo.clusters.kubernetes.cache.queue_history import read_queue_status
from kaiwo.clusters.kubernetes.client import Change, Client, Informer, Resource
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import (
    PARTITIONING_PLANS,
    QUEUES,
    RESERVATIONS,
    TOPOLOGIES,
    FoundQueue,
    PlanObject,
    ReservationObject,
    TopologyObject,
    find_queue,
    find_reservation,
)
from kaiwo.clusters.kubernetes.decode.pod_decoder import Key, PodDecoder
from kaiwo.clusters.kubernetes.volumes.volume_cache import VolumeCache
from kaiwo.clusters.kubernetes.watch.object_handler import KindHandler, ObjectHandler, leaving_out
from kaiwo.clusters.kubernetes.watch.operator_kinds import OperatorKinds
from kaiwo.clusters.kubernetes.writers.partitioning_plan_status_writer import PartitioningPlanStatusWriter
from kaiwo.clusters.kubernetes.writers.reservation_status_writer import ReservationStatusWriter
from kaiwo.clusters.kubernetes.writers.topology_status_writer import TopologyStatusWriter

PODS = "/api/v1/pods"
CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
WRITTEN = (PODS, QUEUES)  # what the next leader must know is on these
LOOK_S = 0.01
TIDY_AFTER = 50_000  # pods that went, before what nobody shares any more is dropped


class ClusterWatch:
    """All the mirrors of one cluster."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        distillery: PodDecoder,
        reserver: ReservationStatusWriter,
        plans: PartitioningPlanStatusWriter,
        topologies: TopologyStatusWriter,
        settle: Callable[[], None],
        report: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self._client, self._cache, self._distillery = client, cache, distillery
        self._settle, self._report, self._reserver, self._plans = settle, report, reserver, plans
        self._topologies = topologies
        self.informers: list[Informer[Any]] = []
        self._handlers: list[ObjectHandler] = []
        self._operator_kinds = OperatorKinds(
            client,
            cache,
            lambda reader, missed: self._watch(reader, True, missed),
            self._relist_at,
            self._check_synced,
            report,
        )
        self._synced = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin to follow."""
        cache = self._cache
        self._watch(PodHandler(Resource(PODS, wire_objects.Pod), cache, self._distillery))
        nodes: Resource[wire_objects.Node] = Resource("/api/v1/nodes", wire_objects.Node)
        self._watch(KindHandler(nodes, _same, _name, cache.upsert_node, lambda node: cache.delete_node(_name(node))))
        spaces: Resource[wire_objects.Namespace] = Resource("/api/v1/namespaces", wire_objects.Namespace)
        self._watch(
            KindHandler(
                spaces,
                _same,
                _name,
                lambda space: cache.affinity_index.upsert_namespace(_name(space), space.metadata.labels or {}),
                lambda space: cache.affinity_index.upsert_namespace(_name(space), None),
            )
        )
        self._watch_volumes(CLAIMS, wire_objects.Claim, VolumeCache.upsert_claim, VolumeCache.delete_claim)
        self._watch_volumes(
            VOLUMES, wire_objects.PersistentVolume, VolumeCache.upsert_volume, VolumeCache.delete_volume
        )
        self._watch_volumes(
            STORAGE_CLASSES, wire_objects.StorageClass, VolumeCache.upsert_class, VolumeCache.delete_class
        )
        queues: Resource[wire_objects.QueueObject] = Resource(QUEUES, wire_objects.QueueObject)
        self._watch(
            KindHandler(
                queues,
                find_queue,
                lambda found: found.name,
                self._put_queue,
                lambda found: cache.delete_queue(found.name),
            ),
            is_optional=True,
        )
        budgets: Resource[BudgetObject] = Resource(BUDGETS, BudgetObject)
        self._watch(
            KindHandler(
                budgets,
                read_budget,
                lambda budget: (budget.namespace, budget.name),
                cache.upsert_budget,
                cache.delete_budget,
            )
        )
        classes: Resource[wire_objects.PriorityClass] = Resource(PRIORITIES, wire_objects.PriorityClass)
        self._watch(KindHandler(classes, _same, _name, cache.priorities.upsert, cache.priorities.delete))
        reservations: Resource[ReservationObject] = Resource(RESERVATIONS, ReservationObject)
        reserver = self._reserver
        self._watch(
            KindHandler(reservations, find_reservation, lambda found: found.name, reserver.upsert, reserver.delete),
            is_optional=True,
        )
        plans: Resource[PlanObject] = Resource(PARTITIONING_PLANS, PlanObject)
        self._watch(
            KindHandler(plans, self._plans.read, lambda plan: plan.name, self._plans.upsert, self._plans.delete),
            is_optional=True,
        )
        topologies: Resource[TopologyObject] = Resource(TOPOLOGIES, TopologyObject)
        self._watch(
            KindHandler(topologies, _same, _name, self._topologies.upsert, self._topologies.delete), is_optional=True
        )
        self._tasks["owners"] = asyncio.create_task(self._operator_kinds.run(), name="kaiwo-discovery")

    async def wait_for_sync(self) -> None:
        """Until every kind was listed whole."""
        await self._synced.wait()

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    @property
    def left_out(self) -> int:
        """Objects that could not be used, since the start."""
        return sum(reader.resource.unreadable for reader in self._handlers)

    async def relist(self) -> None:
        """Until all that a leader writes is known as it is now, or later: a watch may lag, and does not say so."""
        await asyncio.gather(*(self._relist(mirror) for mirror in self.informers if mirror.resource.path in WRITTEN))

    async def _relist(self, mirror: Informer[Any]) -> None:
        path = mirror.resource.path
        if not mirror.lists:
            return  # a kind that the cluster does not have
        lists = mirror.lists
        await self._relist_at(mirror, path)
        while mirror.lists == lists:
            await asyncio.sleep(LOOK_S)

    async def _relist_at(self, mirror: Informer[Any], path: str) -> None:
        """List its objects anew, at this path. Its reader still knows those from before, and drops what is gone."""
        task = self._tasks.pop(mirror.resource.path)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        mirror.resource.path, mirror.version = path, ""
        self._run(mirror)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _watch_volumes(
        self,
        path: str,
        kind: type[Any],
        put: Callable[[VolumeCache, Any], bool],
        drop: Callable[[VolumeCache, Any], bool],
    ) -> None:
        self._watch(
            KindHandler(
                Resource[Any](path, kind),
                _same,
                lambda item: (item.metadata.namespace, item.metadata.name),
                lambda item: self._cache.change_volumes(lambda volumes: put(volumes, item)),
                lambda item: self._cache.change_volumes(lambda volumes: drop(volumes, item)),
            )
        )

    def _watch(
        self, reader: ObjectHandler, is_optional: bool = False, missed: Callable[[], None] = lambda: None
    ) -> Informer[Any]:
        reader.resource.report = self._report
        mirror: Informer[Any] = Informer(
            self._client,
            reader.resource,
            on_list_start=reader.on_list_start,
            on_page=reader.on_page,
            on_list_end=lambda version: self._on_list_end(reader, version),
            on_changes=lambda changes: self._on_changes(reader, changes),
            report=self._report,
            is_optional=is_optional,
            on_not_found=missed,
        )
        self._handlers.append(reader)
        self.informers.append(mirror)
        self._run(mirror)
        return mirror

    def _run(self, mirror: Informer[Any]) -> None:
        path = mirror.resource.path
        self._tasks[path] = asyncio.create_task(mirror.run(), name=f"kaiwo-watch {path}")

    def _on_list_end(self, reader: ObjectHandler, version: str) -> None:
        reader.on_list_end(version)
        self._check_synced()
        self._settle()

    def _on_changes(self, reader: ObjectHandler, changes: Sequence[Change[Any]]) -> None:
        reader.on_changes(changes)
        self._settle()

    def _check_synced(self) -> None:
        if self._operator_kinds.has_discovered and all(reader.is_listed for reader in self._handlers):
            self._synced.set()

    def _put_queue(self, found: FoundQueue) -> None:
        cache, name = self._cache, found.name
        cache.queue_generations[name] = found.item.metadata.generation
        cache.upsert_queue_status(name, read_queue_status(found.item.status))
        if found.value is not None:
            cache.upsert_queue(found.value)
        elif cache.queue_versions.upsert_fault(name, found.fault):
            self._report("queue-unreadable", level="warning", queue=name, error=found.fault)


class PodHandler:
    """Pods: the books keep them, so they are not kept twice."""

    def __init__(self, resource: Resource[wire_objects.Pod], cache: ClusterCache, distillery: PodDecoder) -> None:
        self.resource, self._cache, self._distillery = resource, cache, distillery
        self._coming: set[Key] = set()
        self._gone = 0
        self.is_listed = False

    def on_list_start(self) -> None:
        """What a list that broke off had brought does not count."""
        self._coming = set()

    def on_page(self, items: Sequence[wire_objects.Pod]) -> None:
        """Part of a list."""
        for item in items:
            # One that cannot be used is there all the same: what was known of it holds its devices.
            self._coming.add((item.metadata.namespace, item.metadata.name))
            with leaving_out(self.resource, item):
                self._cache.upsert_pod(self._distillery.decode(item))

    def on_list_end(self, version: str) -> None:
        """Whatever is not in the list has gone meanwhile, unless it is newer than the list."""
        coming, self._coming = self._coming, set()
        shown = int(version)
        for pod in [pod for key, pod in self._cache.pods.items() if key not in coming and pod.version <= shown]:
            self._cache.delete_pod(pod)
        self.is_listed = True

    def on_changes(self, changes: Sequence[Change[wire_objects.Pod]]) -> None:
        """What a watch brought."""
        for item, is_gone in changes:
            with leaving_out(self.resource, item):
                pod = self._distillery.decode(item)
                (self._cache.delete_pod if is_gone else self._cache.upsert_pod)(pod)
            self._gone += is_gone
        if self._gone >= TIDY_AFTER:
            self._gone = 0
            self._distillery.drop_unused(self._cache.pods.values())


def _same(item: Any) -> Any:
    return item


def _name(item: Any) -> str:
    return str(item.metadata.name)
