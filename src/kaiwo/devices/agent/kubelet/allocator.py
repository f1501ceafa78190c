"""Hand out exactly the devices that the scheduler wrote on a pod, and check that the right pod has them.

In:    what the kubelet asks.   Out: what a container gets; Corrections for Kaiwo.
Never: lets a container start on devices that are not its own: it is given others of the same size, which Kaiwo is told,
       or it fails with a reason.

The kubelet names devices and no pod. At Allocate the pod is found by what it waits for; when two wait for the same, the
one that was bound first is taken. Before the container starts, the kubelet's own list says who it was.
"""

import threading
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from kaiwo.devices.agent.kubelet.book import Allocation, Book
from kaiwo.devices.agent.kubelet.matching import Match, exchanged, find_match, nobody_waits, same_shape
from kaiwo.devices.agent.kubelet.pod_resources import Holder, PodResources
from kaiwo.devices.agent.kubelet.pods import BoundPod, Pods, alive
from kaiwo.devices.assigned import read_assigned
from kaiwo.devices.report import Correction
from kaiwo.devices.sharing import Ask, Grant, Refusal, Sharing
from kaiwo.model.errors import ClusterError


class Allocator:
    """For all resources of one node."""

    def __init__(self, node: str, pods: Pods, book: Book, sharing: Sharing, resources: PodResources) -> None:
        self.node = node
        self._pods, self._book, self._sharing, self._resources = pods, book, sharing, resources
        self._lock = threading.Lock()
        self._refused: set[str] = set()  # uids of pods that the API server may not know yet to have failed
        self.tell: Callable[[Correction], None] = lambda _: None
        self.be_sure_of: Callable[[Collection[str]], None] = lambda _: None  # that these devices are still so

    def allocate(self, resource: str, requests: Sequence[list[str]]) -> list[Grant]:
        """For the containers of one call: all, or ClusterError with a reason for the pod."""
        with self._lock:
            found: list[Match] = []
            for ids in requests:
                found.append(self._match(resource, ids, found))
            pairs = zip(requests, found, strict=True)
            return [self._grant(Allocation(resource, tuple(sorted(ids)), match)) for ids, match in pairs]

    def prefer(self, resource: str, available: list[str], must: list[str], size: int) -> list[str]:
        """The names that stand for the devices of the pod that is expected next."""
        try:
            found = find_match(resource, size, self._bound(), self._book.served, self._refused)
        except ClusterError:
            found = ""
        wanted = [share.gpu for share in found.shares] if isinstance(found, Match) else []
        chosen = list(must)
        for gpu in wanted:
            free = (name for name in available if name not in chosen and name.partition("::")[0] == gpu)
            chosen += [name for name in [next(free, "")] if name]
        chosen += [name for name in available if name not in chosen]
        return chosen[:size]

    def verify(self, resource: str, ids: list[str]) -> None:
        """Before a container starts: is it the one that was meant? ClusterError when it must not start."""
        with self._lock:
            allocation = self._book.find(resource, ids)
            if allocation is None:
                raise ClusterError(f"{', '.join(ids)} were handed out by another agent and to nobody we know")
            self.be_sure_of([share.gpu for share in allocation.match.shares])
            if lost := self._sharing.lost(allocation.owner):
                raise ClusterError(f"{lost} is not on this machine any more; delete the pod to have it scheduled again")
            if allocation.is_verified:
                return
            holder = self._holder(allocation, ids)
            if holder is None or _is_holder(holder, allocation.match):
                self._book.replace(allocation, replace(allocation, is_verified=holder is not None))
                return
            self._correct(allocation, holder)

    def forget_gone(self) -> list[str]:
        """Release what ended pods had; their names."""
        with self._lock:
            known = {one.match.pod.uid for one in self._book.allocations} | self._refused
            return [] if known <= alive(self._bound()) else self._forget_gone()

    def _match(self, resource: str, ids: list[str], before: Sequence[Match]) -> Match:
        """The container that is meant; `before`: those of the same call, of which none is meant twice."""
        own = {(match.pod.uid, match.container) for match in before}
        served = self._book.served | own
        found = find_match(resource, len(ids), self._bound(), served, self._refused)
        if isinstance(found, str) or found.pod.uid in self._refused:
            pods = self._bound(is_fresh=True)
            found = find_match(resource, len(ids), pods, served, self._refused)
            if found == nobody_waits(resource, len(ids)) and not own:
                found = self._served_before(resource, ids, alive(pods))
        if isinstance(found, str):
            raise ClusterError(found)
        return found

    def _grant(self, allocation: Allocation) -> Grant:
        pod = allocation.match.pod
        self._refused.add(pod.uid)  # until it has everything
        self.be_sure_of([share.gpu for share in allocation.match.shares])
        self._take_over(allocation)
        grant = self._sharing.prepare(_ask(allocation))
        if isinstance(grant, Refusal) and self._forget_gone():  # whoever has ended may have held what is wanted
            grant = self._sharing.prepare(_ask(allocation))
        if isinstance(grant, Refusal):
            raise ClusterError(f"pod {pod.namespace}/{pod.name}: {grant.reason}")
        self._refused.discard(pod.uid)
        self._book.add(allocation)
        return grant

    def _forget_gone(self) -> list[str]:
        """A list that lags behind does not know the newest pods: only a fresh one says that a pod is gone."""
        uids = alive(self._bound(is_fresh=True))
        self._refused &= uids
        gone = self._book.keep_only(uids)
        for allocation in gone:
            self._sharing.release(allocation.owner)
        return [one.owner for one in gone]

    def _served_before(self, resource: str, ids: list[str], uids: set[str]) -> Match | str:
        """The kubelet lost its list and asks again: the one container that can be meant has its devices already."""
        mine = [one for one in self._book.allocations if one.resource == resource and len(one.ids) == len(ids)]
        mine = [one for one in mine if one.match.pod.uid in uids]
        same = [one for one in mine if one.ids == tuple(sorted(ids))] or mine
        owners = {one.owner: one.match for one in same}
        if len(owners) == 1:
            return replace(same[0].match, is_certain=False)  # before it starts, the kubelet's own list must say so
        names = ", ".join(sorted(f"{match.pod.namespace}/{match.pod.name}" for match in owners.values()))
        if not names:
            return nobody_waits(resource, len(ids))
        return (
            f"the kubelet asks for {len(ids)} {resource}, and {names} have theirs already; which of them it means "
            "cannot be told: delete the one that does not start"
        )

    def _take_over(self, allocation: Allocation) -> None:
        """The kubelet gives these names away again: whoever had them has ended, or is an init container of this pod."""
        taken = set(allocation.ids)
        # A container that was asked for twice goes on under its other names.
        kept = {one.owner for one in self._book.allocations if not taken & set(one.ids)}
        for old in self._book.allocations:
            if old.resource != allocation.resource or not taken & set(old.ids):
                continue
            if old.match.pod.uid == allocation.match.pod.uid and old.match.shares == allocation.match.shares:
                self._sharing.rename(old.owner, allocation.owner)  # the same units for both
            elif old.owner not in kept:
                self._sharing.release(old.owner)

    def _bound(self, is_fresh: bool = False) -> list[BoundPod]:
        """The pods of this node, with the devices that they really have."""
        corrected = self._book.corrected
        pods = self._pods.bound(is_fresh)
        return [replace(pod, assigned=corrected.get(pod.uid, pod.assigned)) for pod in pods]

    def _holder(self, allocation: Allocation, ids: list[str]) -> Holder | None:
        """None when the kubelet does not know yet and there was no doubt either."""
        try:
            holder = self._resources.holder_of(allocation.resource, ids)
        except ClusterError:
            if allocation.match.is_certain:
                return None
            raise
        if holder is None and not allocation.match.is_certain:
            raise ClusterError(f"the kubelet does not say which pod has {', '.join(ids)}, and two wait for as many")
        return holder

    def _correct(self, allocation: Allocation, holder: Holder) -> None:
        """The container that starts is another's: let both have each other's devices, or fail it."""
        mine = allocation.match
        theirs = self._meant(allocation.resource, len(allocation.ids), holder)
        if theirs is None or not same_shape(mine, theirs):
            raise ClusterError(
                f"pod {holder.namespace}/{holder.pod} was about to start on the devices of "
                f"{mine.pod.namespace}/{mine.pod.name}, and theirs are of another size; delete it to try again"
            )
        other = next((one for one in self._book.allocations if _is_holder(holder, one.match)), None)
        mine_now, theirs_now = exchanged(mine, theirs)
        self._book.correct({mine.pod.uid: mine_now, theirs.pod.uid: theirs_now})
        # Each pod with the other's devices, in its match and in what is taken for written on it.
        started = replace(theirs, pod=replace(theirs.pod, assigned=theirs_now), shares=mine.shares)
        waits = replace(mine, pod=replace(mine.pod, assigned=mine_now), shares=theirs.shares)
        new = replace(allocation, match=started, is_verified=True)
        self._sharing.rename(allocation.owner, new.owner)
        self._book.replace(allocation, new)
        if other is None:
            self._book.exchange_served((mine.pod.uid, mine.container), (theirs.pod.uid, theirs.container))
        else:
            self._book.replace(other, replace(other, match=waits))
        self._told(theirs.pod, theirs_now, f"the kubelet started it before {mine.pod.name}")
        self._told(mine.pod, mine_now, f"the kubelet started {theirs.pod.name} before it")

    def _meant(self, resource: str, count: int, holder: Holder) -> Match | None:
        """What is written on the pod that really starts."""
        mine = [pod for pod in self._bound() if (pod.namespace, pod.name) == (holder.namespace, holder.pod)]
        before = {(pod.uid, one) for pod in mine for one in _before(pod, holder.container)}
        found = find_match(resource, count, mine, before)
        return found if isinstance(found, Match) else None

    def _told(self, pod: BoundPod, assigned: str, reason: str) -> None:
        self.tell(Correction(self.node, pod.namespace, pod.name, pod.uid, read_assigned(assigned), reason))


def _ask(allocation: Allocation) -> Ask:
    pod = allocation.match.pod
    return Ask(allocation.owner, allocation.match.shares, pod.isolation, pod.least_grade)


def _is_holder(holder: Holder, match: Match) -> bool:
    return (holder.namespace, holder.pod, holder.container) == (match.pod.namespace, match.pod.name, match.container)


def _before(pod: BoundPod, container: str) -> list[str]:
    """The containers that come before one."""
    names = [one.name for one in pod.containers]
    return names[: names.index(container)] if container in names else []
