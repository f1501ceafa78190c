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
from kaiwo.clusters.kubernetes.cache.queue_history import read_memory
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
from kaiwo.clusters.kubernetes.volumes.volume_cache import Volumes
from kaiwo.clusters.kubernetes.watch.object_handler import Kind, Reader, leaving_out
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
        self.mirrors: list[Informer[Any]] = []
        self._readers: list[Reader] = []
        self._operator_kinds = OperatorKinds(
            client, cache, lambda reader, missed: self._follow(reader, True, missed), self._move, self._warm_up, report
        )
        self._warm = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin to follow."""
        cache = self._cache
        self._follow(Pods(Resource(PODS, wire_objects.Pod), cache, self._distillery))
        nodes: Resource[wire_objects.Node] = Resource("/api/v1/nodes", wire_objects.Node)
        self._follow(Kind(nodes, _same, _name, cache.put_node, lambda node: cache.drop_node(_name(node))))
        spaces: Resource[wire_objects.Namespace] = Resource("/api/v1/namespaces", wire_objects.Namespace)
        self._follow(
            Kind(
                spaces,
                _same,
                _name,
                lambda space: cache.marks.put_namespace(_name(space), space.metadata.labels or {}),
                lambda space: cache.marks.put_namespace(_name(space), None),
            )
        )
        self._follow_volumes(CLAIMS, wire_objects.Claim, Volumes.put_claim, Volumes.drop_claim)
        self._follow_volumes(VOLUMES, wire_objects.PersistentVolume, Volumes.put_volume, Volumes.drop_volume)
        self._follow_volumes(STORAGE_CLASSES, wire_objects.StorageClass, Volumes.put_class, Volumes.drop_class)
        queues: Resource[wire_objects.QueueObject] = Resource(QUEUES, wire_objects.QueueObject)
        self._follow(
            Kind(
                queues,
                find_queue,
                lambda found: found.name,
                self._put_queue,
                lambda found: cache.drop_queue(found.name),
            ),
            is_optional=True,
        )
        budgets: Resource[BudgetObject] = Resource(BUDGETS, BudgetObject)
        self._follow(
            Kind(
                budgets,
                read_budget,
                lambda budget: (budget.namespace, budget.name),
                cache.put_budget,
                cache.drop_budget,
            )
        )
        classes: Resource[wire_objects.PriorityClass] = Resource(PRIORITIES, wire_objects.PriorityClass)
        self._follow(Kind(classes, _same, _name, cache.priorities.put, cache.priorities.drop))
        reservations: Resource[ReservationObject] = Resource(RESERVATIONS, ReservationObject)
        reserver = self._reserver
        self._follow(
            Kind(reservations, find_reservation, lambda found: found.name, reserver.upsert, reserver.delete),
            is_optional=True,
        )
        plans: Resource[PlanObject] = Resource(PARTITIONING_PLANS, PlanObject)
        self._follow(
            Kind(plans, self._plans.read, lambda plan: plan.name, self._plans.upsert, self._plans.delete),
            is_optional=True,
        )
        topologies: Resource[TopologyObject] = Resource(TOPOLOGIES, TopologyObject)
        self._follow(Kind(topologies, _same, _name, self._topologies.upsert, self._topologies.delete), is_optional=True)
        self._tasks["owners"] = asyncio.create_task(self._operator_kinds.run(), name="kaiwo-discovery")

    async def warm(self) -> None:
        """Until every kind was listed whole."""
        await self._warm.wait()

    @property
    def is_warm(self) -> bool:
        return self._warm.is_set()

    @property
    def left_out(self) -> int:
        """Objects that could not be used, since the start."""
        return sum(reader.resource.unreadable for reader in self._readers)

    async def list_again(self) -> None:
        """Until all that a leader writes is known as it is now, or later: a watch may lag, and does not say so."""
        await asyncio.gather(*(self._list_again(mirror) for mirror in self.mirrors if mirror.resource.path in WRITTEN))

    async def _list_again(self, mirror: Informer[Any]) -> None:
        path = mirror.resource.path
        if not mirror.lists:
            return  # a kind that the cluster does not have
        lists = mirror.lists
        await self._move(mirror, path)
        while mirror.lists == lists:
            await asyncio.sleep(LOOK_S)

    async def _move(self, mirror: Informer[Any], path: str) -> None:
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

    def _follow_volumes(
        self, path: str, kind: type[Any], put: Callable[[Volumes, Any], bool], drop: Callable[[Volumes, Any], bool]
    ) -> None:
        self._follow(
            Kind(
                Resource[Any](path, kind),
                _same,
                lambda item: (item.metadata.namespace, item.metadata.name),
                lambda item: self._cache.change_volumes(lambda volumes: put(volumes, item)),
                lambda item: self._cache.change_volumes(lambda volumes: drop(volumes, item)),
            )
        )

    def _follow(
        self, reader: Reader, is_optional: bool = False, missed: Callable[[], None] = lambda: None
    ) -> Informer[Any]:
        reader.resource.report = self._report
        mirror: Informer[Any] = Informer(
            self._client,
            reader.resource,
            begun=reader.begun,
            page=reader.page,
            listed=lambda version: self._listed(reader, version),
            changed=lambda changes: self._changed(reader, changes),
            report=self._report,
            is_optional=is_optional,
            missed=missed,
        )
        self._readers.append(reader)
        self.mirrors.append(mirror)
        self._run(mirror)
        return mirror

    def _run(self, mirror: Informer[Any]) -> None:
        path = mirror.resource.path
        self._tasks[path] = asyncio.create_task(mirror.run(), name=f"kaiwo-watch {path}")

    def _listed(self, reader: Reader, version: str) -> None:
        reader.listed(version)
        self._warm_up()
        self._settle()

    def _changed(self, reader: Reader, changes: Sequence[Change[Any]]) -> None:
        reader.changed(changes)
        self._settle()

    def _warm_up(self) -> None:
        if self._operator_kinds.is_known and all(reader.is_listed for reader in self._readers):
            self._warm.set()

    def _put_queue(self, found: FoundQueue) -> None:
        cache, name = self._cache, found.name
        cache.queue_generations[name] = found.item.metadata.generation
        cache.remember(name, read_memory(found.item.status))
        if found.what is not None:
            cache.put_queue(found.what)
        elif cache.queue_shelf.put_fault(name, found.fault):
            self._report("queue-unreadable", level="warning", queue=name, error=found.fault)


class Pods:
    """Pods: the books keep them, so they are not kept twice."""

    def __init__(self, resource: Resource[wire_objects.Pod], cache: ClusterCache, distillery: PodDecoder) -> None:
        self.resource, self._cache, self._distillery = resource, cache, distillery
        self._coming: set[Key] = set()
        self._gone = 0
        self.is_listed = False

    def begun(self) -> None:
        """What a list that broke off had brought does not count."""
        self._coming = set()

    def page(self, items: Sequence[wire_objects.Pod]) -> None:
        """Part of a list."""
        for item in items:
            # One that cannot be used is there all the same: what was known of it holds its devices.
            self._coming.add((item.metadata.namespace, item.metadata.name))
            with leaving_out(self.resource, item):
                self._cache.put_pod(self._distillery.pod(item))

    def listed(self, version: str) -> None:
        """Whatever is not in the list has gone meanwhile, unless it is newer than the list."""
        coming, self._coming = self._coming, set()
        shown = int(version)
        for pod in [pod for key, pod in self._cache.pods.items() if key not in coming and pod.version <= shown]:
            self._cache.drop_pod(pod)
        self.is_listed = True

    def changed(self, changes: Sequence[Change[wire_objects.Pod]]) -> None:
        """What a watch brought."""
        for item, is_gone in changes:
            with leaving_out(self.resource, item):
                pod = self._distillery.pod(item)
                (self._cache.drop_pod if is_gone else self._cache.put_pod)(pod)
            self._gone += is_gone
        if self._gone >= TIDY_AFTER:
            self._gone = 0
            self._distillery.forget_unused(self._cache.pods.values())


def _same(item: Any) -> Any:
    return item


def _name(item: Any) -> str:
    return str(item.metadata.name)
