"""Allocate exactly the devices that the scheduler chose for a pod, and verify that the right pod gets them.

The kubelet names devices but no pod. Allocate finds the pod that waits for this request; of several, the one bound
first. Before the container starts, the kubelet's pod resources say which pod it was (`verify_allocation`). A container
never starts on another pod's devices: two pods of equal size swap devices, which is reported to Kaiwo, or it fails.
Where grants are verified, a pod whose grant the scheduler did not sign gets nothing. Neither does a pod whose devices
another living pod holds. An Event says why.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from kaiwo.devices.agent.kubelet.allocation_records import AllocationRecords, DeviceAllocation, is_earlier_init
from kaiwo.devices.agent.kubelet.bound_pods import (
    SHARE_RESOURCE,
    BoundPod,
    PodLister,
    decode_granted,
    unfinished_uids,
)
from kaiwo.devices.agent.kubelet.match_pod import PodMatch, find_match, no_waiting_pod
from kaiwo.devices.agent.kubelet.pod_resources import PodResources
from kaiwo.devices.agent.kubelet.verify_allocation import AllocationVerifier
from kaiwo.devices.agent_messages import Correction, HeldDevices
from kaiwo.devices.sharing.prepare_grants import GpuSharing
from kaiwo.devices.sharing.share_types import Grant, GrantRequest, Refusal
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.gpus.gpu_models import RESOURCE_VENDORS

RESOURCES = frozenset({*RESOURCE_VENDORS, SHARE_RESOURCE})
GRANT_REFUSED, DEVICE_IN_USE = "GrantRefused", "DeviceInUse"  # reasons of Events


class GrantCheck(Protocol):
    def checked(self, pods: Sequence[BoundPod], served: Mapping[str, str]) -> list[BoundPod]:
        """The pods with what they may have, or with the reason why not. `served`: by UID, what they were given."""


class RefusalEvents(Protocol):
    def write(self, pod: BoundPod, reason: str, sentence: str, related: BoundPod | None = None) -> None: ...


class Allocator:
    def __init__(
        self, node: str, pods: PodLister, records: AllocationRecords, sharing: GpuSharing, resources: PodResources
    ) -> None:
        self.node = node
        self.grant_check: GrantCheck | None = None  # None: every grant is honoured
        self.events: RefusalEvents | None = None
        self._pods, self._records, self._sharing = pods, records, sharing
        self._lock = threading.Lock()
        self._verifier = AllocationVerifier(self._bound_pods, records, sharing, resources)
        self._refused = self._verifier.refused
        self.report: Callable[[Correction], None] = lambda _: None
        self.ensure_current: Callable[[Collection[str]], None] = lambda _: None  # raises if these devices are changing
        self.why_unusable: Callable[[Collection[str]], str] = lambda _: ""  # why one can't be used; empty if all can

    def allocate(self, resource: str, requests: Sequence[list[str]]) -> list[Grant]:
        """Allocate for the containers of one call: all of them, or ClusterError with the reason."""
        with self._lock:
            found: list[PodMatch] = []
            for ids in requests:
                found.append(self._match(resource, ids, found))
            pairs = zip(requests, found, strict=True)
            return [self._grant(DeviceAllocation(resource, tuple(sorted(ids)), match)) for ids, match in pairs]

    def prefer(self, resource: str, available: list[str], must: list[str], size: int) -> list[str]:
        """The names of the devices of the pod that is expected next."""
        try:
            found = self._expected(resource, must, size, self._bound_pods(), self._records.served)
        except ClusterError:
            found = ""
        wanted = [share.gpu for share in found.shares] if isinstance(found, PodMatch) else []
        chosen = list(must)
        for gpu in wanted:
            free = (name for name in available if name not in chosen and name.partition("::")[0] == gpu)
            chosen += [name for name in [next(free, "")] if name]
        chosen += [name for name in available if name not in chosen]
        return chosen[:size]

    def verify(self, resource: str, ids: list[str]) -> None:
        """Check, before a container starts, that it is the intended one; ClusterError if it must not start."""
        with self._lock:
            here = self._records.find(resource, ids)
            if not here:
                raise ClusterError(self._verifier.explain_unknown_names(resource, ids))
            self.ensure_current([share.gpu for share in here[0].match.shares])
            if lost := self._sharing.missing_device(here[0].owner):
                raise ClusterError(f"{lost} is gone from this machine; delete the pod to have it scheduled again")
            if all(one.is_verified for one in here):
                return
            for line in self._verifier.verify(here, self.node):
                self.report(line)
            self._check_usable(self._records.find(resource, ids))

    def held(self) -> tuple[HeldDevices, ...]:
        """Which pods hold which devices now."""
        owners = {one.owner: one.match for one in self._records.allocations}
        pods = {match.pod.uid: match.pod for match in owners.values()}
        shares = {uid: tuple(s for m in owners.values() if m.pod.uid == uid for s in m.shares) for uid in pods}
        return tuple(HeldDevices(pod.namespace, pod.name, uid, shares[uid]) for uid, pod in sorted(pods.items()))

    def release_ended(self) -> list[str]:
        """Release the devices of ended pods; return their owners."""
        with self._lock:
            known = {one.match.pod.uid for one in self._records.allocations} | self._refused
            return [] if known <= unfinished_uids(self._bound_pods()) else self._release_ended()

    def _match(self, resource: str, ids: list[str], before: Sequence[PodMatch]) -> PodMatch:
        """The container that this request is for; `before`: those of the same call, which are excluded."""
        own = {(match.pod.uid, match.container) for match in before}
        served = self._records.served | own
        found = self._expected(resource, ids, len(ids), self._bound_pods(), served)
        if isinstance(found, str) or found.pod.uid in self._refused or found.pod.is_leaving:
            pods = self._bound_pods(is_fresh=True)
            found = self._expected(resource, ids, len(ids), pods, served)
            if found == no_waiting_pod(resource, len(ids)) and not own:
                found = self._already_served(resource, ids, unfinished_uids(pods))
        if isinstance(found, str):
            raise ClusterError(found)
        return replace(found, is_certain=found.is_certain and not self._may_be_swapped(resource, len(ids)))

    def _expected(
        self, resource: str, names: list[str], count: int, pods: list[BoundPod], served: Collection[tuple[str, str]]
    ) -> PodMatch | str:
        """The expected container; names of an init container are reused by later containers of its pod."""
        before = [one for one in self._records.allocations if one.overlaps(resource, names)]
        same = [pod for pod in pods if pod.uid in {one.match.pod.uid for one in before}]
        found = find_match(resource, count, same, served) if len(same) == 1 else ""
        if isinstance(found, PodMatch):
            return replace(found, is_certain=all(one.match.is_certain for one in before))
        return find_match(resource, count, pods, served, self._refused)

    def _may_be_swapped(self, resource: str, count: int) -> bool:
        """True if an unverified request of this size may have got another pod's devices: this match is uncertain."""
        like = [one for one in self._records.allocations if one.resource == resource and len(one.ids) == count]
        return any(not one.is_verified and not one.match.is_certain for one in like)

    def _grant(self, allocation: DeviceAllocation) -> Grant:
        pod = allocation.match.pod
        self._refused.add(pod.uid)  # until it has all its devices
        self.ensure_current([share.gpu for share in allocation.match.shares])
        is_new = all(one.owner != allocation.owner for one in self._records.allocations)
        if is_new and allocation.match.is_certain and (why := self._why_unusable(allocation)):
            raise ClusterError(why)  # the pod fails, and its controller creates another, which starts elsewhere
        self._free_names(allocation)
        self._check_overlap(allocation)
        grant = self._sharing.prepare(_grant_request(allocation), self._never_concurrent(allocation))
        if isinstance(grant, Refusal) and self._release_ended():  # an ended pod may have held these devices
            grant = self._sharing.prepare(_grant_request(allocation), self._never_concurrent(allocation))
        if isinstance(grant, Refusal):
            raise ClusterError(f"pod {pod.namespace}/{pod.name}: {grant.reason}")
        self._refused.discard(pod.uid)
        self._records.add(allocation)
        return grant

    def _check_overlap(self, allocation: DeviceAllocation) -> None:
        """Refuse a device that another living pod holds, whoever granted it."""
        pod = allocation.match.pod
        found = self._holder_of_same(allocation)
        if found is not None and self._release_ended():
            found = self._holder_of_same(allocation)
        if found is None:
            return
        gpu, other = found
        why = f"{gpu} is held by pod {other.namespace}/{other.name}, which has not ended; delete one of the two"
        if self.events is not None:
            self.events.write(pod, DEVICE_IN_USE, f"refused by the agent of {self.node}: {why}", other)
        raise ClusterError(f"pod {pod.namespace}/{pod.name}: {why}")

    def _holder_of_same(self, allocation: DeviceAllocation) -> tuple[str, BoundPod] | None:
        """A device of this allocation that others hold so much of that it does not fit, and one of them."""
        mine = allocation.match.pod
        others = {
            one.match.pod.uid: one.match.pod for one in self._records.allocations if one.match.pod.uid != mine.uid
        }
        for gpu in dict.fromkeys(share.gpu for share in allocation.match.shares):
            wanted = self._granted_milli(mine, gpu)
            held = [(milli, pod) for pod in others.values() if (milli := self._granted_milli(pod, gpu)) is not None]
            amounts = [wanted or 0, *(milli for milli, _ in held)]
            if held and (max(amounts) >= WHOLE_MILLI or sum(amounts) > WHOLE_MILLI):
                return gpu, max(held, key=lambda one: one[0])[1]
        return None

    def _granted_milli(self, pod: BoundPod, gpu: str) -> int | None:
        """How much of a device a pod was given; None: it has none of it."""
        shares = decode_granted(self._records.corrected.get(pod.uid, pod.assigned))
        own = [share.milli for share in shares if share.gpu == gpu]
        return sum(own) if own else None

    def _check_usable(self, here: Sequence[DeviceAllocation]) -> None:
        """Check again before the start: Allocate may have been for another pod. A device that recovers can be used."""
        if here and (why := self._why_unusable(here[0])):
            self._records.replace([(one, replace(one, is_verified=False)) for one in here])
            raise ClusterError(why)

    def _why_unusable(self, allocation: DeviceAllocation) -> str:
        pod, why = allocation.match.pod, self.why_unusable([share.gpu for share in allocation.match.shares])
        return f"pod {pod.namespace}/{pod.name}: {why}" if why else ""

    def _release_ended(self) -> list[str]:
        """Release ended pods by a fresh list, since a cached one may lack the newest pods."""
        uids = unfinished_uids(self._bound_pods(is_fresh=True))
        self._refused &= uids
        gone = self._records.keep_only(uids)
        for allocation in gone:
            self._sharing.release(allocation.owner)
        return [one.owner for one in gone]

    def _already_served(self, resource: str, ids: list[str], uids: set[str]) -> PodMatch | str:
        """The kubelet lost its state and asks again for a container that has its devices already."""
        mine = [one for one in self._records.allocations if one.resource == resource and len(one.ids) == len(ids)]
        mine = [one for one in mine if one.match.pod.uid in uids]
        same = [one for one in mine if one.ids == tuple(sorted(ids))] or mine
        owners = {one.owner: one.match for one in same}
        if len(owners) == 1:
            theirs = [one for one in mine if one.owner == same[0].owner]
            again = {one.match.container for one in theirs if one.overlaps(resource, ids)}
            left = [one for one in theirs if one.match.container not in again] or theirs
            return replace(left[0].match, is_certain=False)  # must be verified before it starts
        names = ", ".join(sorted(f"{match.pod.namespace}/{match.pod.name}" for match in owners.values()))
        if not names:
            return no_waiting_pod(resource, len(ids))
        return (
            f"the kubelet asks for {len(ids)} {resource}, but {names} have theirs already; which of them it means "
            "is unknown: delete the one that does not start"
        )

    def _free_names(self, allocation: DeviceAllocation) -> None:
        """Free names that the kubelet assigns again: their pod has ended, or was never the right one."""
        old = [one for one in self._records.allocations if one.overlaps(allocation.resource, allocation.ids)]
        gone = [one for one in old if not is_earlier_init(one.match, allocation.match)]
        mismatched = [one for one in gone if one.match.pod.uid != allocation.match.pod.uid and not one.is_verified]
        self._records.drop(mismatched)  # their pods may still ask
        # A container that was allocated twice keeps its other names.
        kept = {one.owner for one in self._records.allocations if one not in gone} | {allocation.owner}
        for owner in dict.fromkeys(one.owner for one in gone if one.owner not in kept):
            self._sharing.release(owner)

    def _never_concurrent(self, allocation: DeviceAllocation) -> list[str]:
        """Owners in the same pod that use these devices before or after it, such as init containers."""
        mine = allocation.match
        pod = [one for one in self._records.allocations if one.match.pod.uid == mine.pod.uid]
        return [one.owner for one in pod if set(one.match.shares) & set(mine.shares)]

    def _bound_pods(self, is_fresh: bool = False) -> list[BoundPod]:
        corrected = self._records.corrected
        pods = self._pods.bound(is_fresh)
        if self.grant_check is not None:
            pods = self.grant_check.checked(
                pods, {one.match.pod.uid: one.match.pod.assigned for one in self._records.allocations}
            )
            self._report_refused(pods)
        return [replace(pod, assigned=corrected.get(pod.uid, pod.assigned)) for pod in pods]

    def _report_refused(self, pods: Sequence[BoundPod]) -> None:
        for pod in pods:
            if (
                pod.refusal
                and self.events is not None
                and any(RESOURCES & one.devices.keys() for one in pod.containers)
            ):
                self.events.write(pod, GRANT_REFUSED, f"refused by the agent of {self.node}: {pod.refusal}")


def _grant_request(allocation: DeviceAllocation) -> GrantRequest:
    pod = allocation.match.pod
    return GrantRequest(allocation.owner, allocation.match.shares, pod.isolation, pod.least_grade)
