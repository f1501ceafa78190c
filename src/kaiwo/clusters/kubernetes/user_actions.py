"""What people can change in a Kubernetes cluster through Kaiwo: settings of workloads, and whether nodes take work.

A setting is an annotation, so changing it makes no second source of truth: kubectl and Kaiwo write the same text. A
patch of the status may change annotations too, and needs no right to change pods. What only kubectl may do (create,
delete, change containers) is refused with the line that does it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.change_annotations import (
    FIELDS_WHILE_RUNNING,
    Notes,
    annotations_of_change,
    changed_fields,
    checkpoint_annotations,
    held_annotations,
    progress_annotations,
)
from kaiwo.clusters.kubernetes.client import ApiError, Client
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.kubectl_lines import WorkloadObjects
from kaiwo.clusters.protocol import Action, ChangedWorkload, NodeFault, WorkloadChange
from kaiwo.clusters.queue_access import (
    check_priority,
    check_queue_access,
    check_queue_takes_work,
    check_reservation_exists,
    check_shares,
)
from kaiwo.manifests.workload_change import SETTINGS, WHILE_RUNNING
from kaiwo.model.errors import ForbiddenError, KaiwoError, NotFoundError, RefusedError
from kaiwo.model.performance import ProgressReport
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import Program, WorkloadRecord, WorkloadState

AT_ONCE = 16  # patches of the pods of one workload
TRIES = 5  # of a patch of a pod that somebody else changes at the same time
EXAMPLE = "examples/kubernetes-job.yaml shows a manifest"


class NamedWork(msgspec.Struct, frozen=True):
    """A workload that somebody wants to change, as the cluster has it now."""

    workload: Workload
    pods: tuple[CachedPod, ...]  # that live; the last one speaks for all
    owners: tuple[Mapping[str, str], ...]  # the annotations of the objects above them
    objects: WorkloadObjects
    is_settled: bool  # a pod of it runs, or is being bound

    @property
    def running(self) -> list[CachedPod]:
        return [pod for pod in self.pods if pod.node]


class KubernetesWork:
    """Implements WorkControl by annotations on pods."""

    actions: Sequence[Action] = ("hold", "release")

    def __init__(self, client: Client, cache: ClusterCache, now_s: Callable[[], int]) -> None:
        self._client, self._cache, self._now_s = client, cache, now_s

    def changeable_fields(self, record: WorkloadRecord) -> Sequence[str]:
        """Only a share of a GPU has its size in annotations."""
        if record.state not in (WorkloadState.WAITING, WorkloadState.HELD):
            return WHILE_RUNNING if record.state in (WorkloadState.STARTING, WorkloadState.RUNNING) else ()
        is_share = len(record.workload.roles) == 1 and record.workload.roles[0].request.fraction_milli
        return ("priority", "queue", "hold", *(("gpuFraction",) if is_share else ()), *SETTINGS)

    def kubectl_stop(self, name: str) -> str:
        try:
            return self._find(name).objects.stop
        except NotFoundError:
            return ""

    async def put(
        self,
        queues: Sequence[Queue],
        items: Sequence[tuple[Workload, Program]],
        who: str = "",
        dry_run: bool = False,
        reservations: Sequence[Reservation] = (),
    ) -> tuple[Queue | None, ...]:
        if items:
            raise _refusal(f"write a manifest and create it with: kubectl apply -f FILE ({EXAMPLE})")
        raise _refusal("create it with: kubectl apply -f FILE")

    async def remove(
        self,
        queues: Sequence[str],
        workloads: Sequence[str],
        who: str = "",
        reservations: Sequence[str] = (),
        only_of: str | None = None,
    ) -> tuple[str, ...]:
        lines = [self._find(name).objects.stop for name in workloads]
        lines += [f"kubectl delete {kind} {name}" for kind, names in
                  (("kaiworeservation", reservations), ("kaiwoqueue", queues)) for name in names]  # fmt: skip
        raise _refusal(f"delete it with: {'; '.join(lines) or 'kubectl delete -f FILE'}")

    def reservations(self) -> Sequence[Reservation]:
        return [found for _, found in sorted(self._cache.reservations.items())]

    async def change(self, action: Action, name: str, who: str = "", only_of: str | None = None) -> None:
        (refusal,) = await self.change_many(action, (name,), who, only_of)
        if refusal is not None:
            raise refusal

    async def change_many(
        self, action: Action, names: Sequence[str], who: str = "", only_of: str | None = None
    ) -> tuple[KaiwoError | None, ...]:
        found: list[KaiwoError | None] = []
        for name in names:
            try:
                work = self._find(name, only_of)
                if action == "cancel":
                    raise _refusal(work.objects.cancel)
                if action == "requeue":
                    raise _refusal(work.objects.requeue)
                await self._set_held(work, action == "hold", who)
                found.append(None)
            except KaiwoError as refusal:
                found.append(refusal)
        return tuple(found)

    async def set_many(
        self, names: Sequence[str], change: WorkloadChange, who: str = "", only_of: str | None = None
    ) -> tuple[ChangedWorkload | KaiwoError, ...]:
        results: list[ChangedWorkload | KaiwoError] = []
        for name in names:
            try:
                work = self._find(name, only_of)
                after = change(work.workload)
                notes = self._checked_change(work, after)
                waits = not changed_fields(work.workload, after) <= FIELDS_WHILE_RUNNING
                await self._annotate(work, notes, who, must_wait=waits)
                results.append(ChangedWorkload(work.workload, after))
            except KaiwoError as refusal:
                results.append(refusal)
        return tuple(results)

    async def checkpoint(self, name: str, at_s: int = 0, who: str = "", only_of: str | None = None) -> int:
        work, now_s = self._find(name, only_of), self._now_s()
        if not work.running:
            raise RefusedError(f"workload {name} is not running, so it has nothing to save; wait until it runs")
        saved_s = max(work.workload.checkpoint_s, min(at_s or now_s, now_s))
        await self._annotate(work, checkpoint_annotations(saved_s), who, work.running)
        return saved_s

    async def progress(self, report: ProgressReport, who: str = "", only_of: str | None = None) -> None:
        work = self._find(report.workload, only_of)
        slots = self._cache.slots
        chosen = [pod for pod in work.running if not report.pod or pod is slots.find(report.workload, report.pod)]
        if not chosen:
            whose = f"has no pod {report.pod} that runs" if report.pod else "is not running, so it makes no progress"
            raise RefusedError(f"workload {report.workload} {whose}; see: kaiwo describe workload {report.workload}")
        await self._annotate(work, progress_annotations(report), who, chosen)

    async def forget_ended(self, names: Sequence[str], who: str = "", only_of: str | None = None) -> None:
        """There is nothing to forget: ended work is not kept here."""

    def _find(self, name: str, only_of: str | None = None) -> NamedWork:
        """NotFoundError: it does not live. ForbiddenError: it belongs to somebody else."""
        cache = self._cache
        namespace, _, pod = name.partition("/")
        unit = cache.names.unit_of.get(name) or cache.gang_index.unit_of.get((namespace, pod))
        keys = () if unit is None else cache.gang_index.keys_of.get(unit, ())
        living = [found for key in keys if not (found := cache.pods[key]).is_finished]
        pods = [each for each in living if each.scheduler == cache.scheduler]
        is_fixed = cache.slots.is_fixed
        pods.sort(key=lambda each: (not is_fixed(each), each.created_s, each.name))  # the first speaks for all
        if unit is None or not pods:
            raise _unknown(name)
        workload = self._workload(cache.names.name(unit))
        if only_of is not None and (not workload.user or workload.user != only_of):
            whose = f"user '{workload.user}'" if workload.user else "no known user"
            raise ForbiddenError(
                f"workload {workload.name} belongs to {whose}; only its user, operators and admins may change it"
            )
        owners = tuple(each.annotations for each in cache.gang_index.owner_metadata(pods[0]))
        objects = WorkloadObjects(pods, cache.gang_index.top_owner(pods[0]))
        return NamedWork(workload, tuple(reversed(pods)), owners, objects, is_fixed(pods[0]))

    def _workload(self, name: str) -> Workload:
        """As it was published, but held only if a person says so."""
        published = self._cache.published
        if (workload := published.workloads.get(name)) is not None:
            return workload
        if (blocked := published.blocked.get(name)) is None:
            raise _unknown(name)
        return replace(blocked.workload, held=blocked.is_held)

    def _checked_change(self, work: NamedWork, after: Workload) -> Notes:
        before = work.workload
        changed = changed_fields(before, after)
        if work.is_settled and not changed <= FIELDS_WHILE_RUNNING:
            raise RefusedError(
                f"workload {before.name} is running, and only its priority, time and estimate can be changed now; "
                f"{work.objects.requeue}"
            )
        notes = annotations_of_change(before, after, work.objects.resize)
        for key, text in notes.items():
            if text is None and any(key in annotations for annotations in work.owners):
                raise RefusedError(
                    f"workload {before.name}: {key} is on the object that owns its pods, so it cannot be cleared on "
                    f"them; {work.objects.annotate_owner(key)}"
                )
        if changed & {"queue", "priority", "roles", "reservation"}:
            self._check_demands(after)
        return notes

    def _check_demands(self, workload: Workload) -> None:
        """What the webhook checks when the work is created."""
        queues, queue = self._cache.queues, workload.queue
        children = [name for name, each in queues.items() if each.parent == queue]
        check_queue_takes_work(queues, queue, children)
        check_queue_access(queues, workload)
        check_priority(queues, workload)
        check_shares(queues, workload.name, queue, [role.request for role in workload.roles])
        check_reservation_exists(self._cache.reservations, workload)

    async def _set_held(self, work: NamedWork, is_held: bool, who: str) -> None:
        name = work.workload.name
        if is_held and work.is_settled:
            raise RefusedError(f"workload {name} is running and only waiting work can be held; {work.objects.requeue}")
        if not is_held and not work.workload.held:
            blocked = self._cache.published.blocked.get(name)
            why = f"it waits for something else: {blocked.reason}" if blocked else "there is nothing to release"
            raise RefusedError(f"workload {name} is not held; {why}")
        if work.workload.held != is_held:
            await self._annotate(work, held_annotations(is_held), who, must_wait=True)

    async def _annotate(
        self,
        work: NamedWork,
        notes: Notes,
        who: str,
        pods: Iterable[CachedPod] | None = None,
        must_wait: bool = False,
    ) -> None:
        """One pod speaks for all of them, and it is the last: a change that fails halfway is not made.

        `must_wait`: what it changes was settled for pods that are bound by now, also in this moment.
        """
        if not notes:
            return
        *others, last = work.pods if pods is None else pods
        said = ", ".join(f"{key}={'' if text is None else text}" for key, text in sorted(notes.items()))
        reason = f"{said} by {who}" if who else said
        for at in range(0, len(others), AT_ONCE):
            await asyncio.gather(*(self._patch(pod, notes, reason, must_wait) for pod in others[at : at + AT_ONCE]))
        await self._patch(last, notes, reason, must_wait)

    async def _patch(self, pod: CachedPod, notes: Notes, reason: str, must_wait: bool) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        for tries_left in reversed(range(TRIES)):
            try:
                version = {"resourceVersion": await self._version_while_it_waits(pod, path)} if must_wait else {}
                body = msgspec.json.encode({"metadata": {"uid": pod.uid, "annotations": notes} | version})
                await self._client.patch(f"{path}/status", body, reason=reason)
                return
            except ApiError as error:
                if must_wait and error.is_conflict and tries_left:
                    continue  # somebody changed it since it was read, perhaps we ourselves
                if error.is_replaced:
                    raise NotFoundError(f"pod {pod.namespace}/{pod.name} is gone; nothing was changed on it") from error
                raise

    async def _version_while_it_waits(self, pod: CachedPod, path: str) -> str:
        """Its version in this moment. RefusedError: it has been bound, so what it asks for is settled."""
        now = msgspec.json.decode(await self._client.read(path), type=wire_objects.Pod)
        if now.spec.node_name and now.metadata.uid == pod.uid:
            raise RefusedError(
                f"pod {pod.namespace}/{pod.name} has just been started, and only its priority, time and estimate can "
                "be changed now"
            )
        return now.metadata.resource_version


class KubernetesNodes:
    """Implements NodeControl."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def cordon(self, name: str, cordoned: bool, reason: str = "", who: str = "") -> None:
        body = msgspec.json.encode({"spec": {"unschedulable": cordoned}})
        try:
            by = " ".join(filter(None, ("cordoned" if cordoned else "uncordoned", who and f"by {who}")))
            await self._client.patch(f"/api/v1/nodes/{name}", body, reason=f"{by}: {reason}" if reason else by)
        except ApiError as error:
            if error.is_not_found:
                raise NotFoundError(f"there is no node {name}") from None
            raise

    async def drain(self, name: str, reason: str = "", who: str = "") -> tuple[str, ...]:
        raise _refusal(f"kubectl drain {name} does it, with its rules for DaemonSets and local data")

    async def fail(self, name: str, fault: NodeFault, who: str = "") -> None:
        taint = f"kubectl taint nodes {name} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        raise _refusal(f"fence a node that is switched off with: {taint}")

    async def restore(self, name: str, who: str = "") -> None:
        raise _refusal(f"kubectl annotate node {name} kaiwo.ai/failures- makes Kaiwo forget its failures")


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(f"no workload '{name}' is waiting or running; kaiwo get workloads lists them")


def _refusal(way_out: str) -> RefusedError:
    return RefusedError(f"this cluster is Kubernetes, which keeps its own work; {way_out}")
