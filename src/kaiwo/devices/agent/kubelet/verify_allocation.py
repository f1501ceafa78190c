"""Verify before a container starts that its devices were allocated for it; otherwise swap the devices of two pods.

If a container must not start, only its pod fails, and the pod whose allocation it took gets it back.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from kaiwo.devices.agent.kubelet.allocation_records import AllocationRecords, DeviceAllocation
from kaiwo.devices.agent.kubelet.bound_pods import BoundPod, decode_granted
from kaiwo.devices.agent.kubelet.match_pod import (
    PodMatch,
    are_interchangeable,
    containers_on_same_devices,
    swapped_devices,
)
from kaiwo.devices.agent.kubelet.pod_resources import DeviceHolder, PodResources, find_holder
from kaiwo.devices.agent_messages import Correction
from kaiwo.devices.sharing.prepare_grants import GpuSharing
from kaiwo.model.errors import ClusterError


def can_swap(
    records: AllocationRecords, here: Sequence[DeviceAllocation], users: Sequence[PodMatch], corrected: dict[str, str]
) -> bool:
    """False if a pod would get a device twice, or one that a third pod has by now.

    That happens if containers were wrongly assumed to use devices one after another.
    """
    mine, theirs = _corrected_match(here[0].match, corrected), _corrected_match(users[0], corrected)
    before = {match.pod.uid: _gpus(match.pod.assigned) for match in (mine, theirs)}
    corrected |= swapped_devices(mine, theirs)
    is_theirs = {share.gpu for share in mine.shares} <= set().union(*before.values())
    is_as_many = all(len(_gpus(corrected[uid])) >= len(gpus) for uid, gpus in before.items())
    return (
        is_theirs
        and is_as_many
        and all(one.match.shares == theirs.shares for one in _other_allocations(records, here, users))
    )


def swap(
    records: AllocationRecords, sharing: GpuSharing, here: Sequence[DeviceAllocation], users: Sequence[PodMatch]
) -> None:
    """Let these containers keep the devices they started with, and give the others those of these."""
    mine, theirs = _corrected_match(here[0].match, records.corrected), _corrected_match(users[0], records.corrected)
    written, others = swapped_devices(mine, theirs), _other_allocations(records, here, users)
    records.correct(written)
    new = []
    for one, user in zip(here, users, strict=True):
        started = replace(user, pod=replace(user.pod, assigned=written[theirs.pod.uid]), shares=mine.shares)
        waits = replace(one.match, pod=replace(one.match.pod, assigned=written[mine.pod.uid]), shares=theirs.shares)
        new.append((one, replace(one, match=started, is_verified=True)))
        user_key = (user.pod.uid, user.container)
        user_allocations = [other for other in others if other.served_key == user_key]
        new += [(other, replace(other, match=replace(waits, is_certain=False))) for other in user_allocations]
        if not user_allocations:
            records.swap_served(one.served_key, user_key)
    sharing.rename(here[0].owner, new[0][1].owner)
    records.replace(new)


def _other_allocations(
    records: AllocationRecords, here: Sequence[DeviceAllocation], users: Sequence[PodMatch]
) -> list[DeviceAllocation]:
    user_keys = [(user.pod.uid, user.container) for user in users]
    return [one for one in records.allocations if one.served_key in user_keys and one not in here]


def _corrected_match(match: PodMatch, corrected: Mapping[str, str]) -> PodMatch:
    return replace(match, pod=replace(match.pod, assigned=corrected.get(match.pod.uid, match.pod.assigned)))


def _gpus(assigned: str) -> set[str]:
    return {share.gpu for share in decode_granted(assigned)}


OTHER_SIZE = "its own are of another size; delete it to try again"
MIXED_PODS = (
    "its containers got the devices of two pods, because the kubelet admitted pods in another order than "
    "they were bound; delete it to try again"
)


class AllocationVerifier:
    def __init__(
        self,
        bound: Callable[[bool], list[BoundPod]],
        records: AllocationRecords,
        sharing: GpuSharing,
        resources: PodResources,
    ) -> None:
        self._bound, self._records, self._sharing, self._resources = bound, records, sharing, resources
        self.refused: set[str] = set()  # uids of pods that failed, which the API server may not show yet

    def verify(self, here: Sequence[DeviceAllocation], node: str) -> list[Correction]:
        """Verify `here`, the allocations of one set of names. ClusterError if the container must not start."""
        try:
            holders = self._resources.holders()
        except ClusterError:
            if all(one.match.is_certain for one in here):
                return []
            raise
        holder = self._holder(here, holders)
        mine, meant = here[0].match, self._intended(here, holder)
        if not isinstance(meant, str) and (meant[0].pod.uid, meant[0].shares) == (mine.pod.uid, mine.shares):
            self._records.replace([(one, replace(one, is_verified=True)) for one in here])
            return []
        try:
            return self._correct(self._with_overlapping(here), holders, holder, node)
        except ClusterError:
            self._undo(here, holders, holder)
            raise

    def explain_unknown_names(self, resource: str, ids: Sequence[str]) -> str:
        holder = find_holder(self._resources.holders(), resource, ids)
        if holder is None:
            return f"{', '.join(ids)} were allocated by another agent, to an unknown pod"
        users = self._containers(resource, len(ids), holder)
        if isinstance(users, str):
            return users
        return f"pod {holder.namespace}/{holder.pod} did not get the devices in its annotation; delete it to try again"

    def _holder(self, here: Sequence[DeviceAllocation], holders: Sequence[DeviceHolder]) -> DeviceHolder:
        """The holder of these names: as the kubelet lists it, or else the only pod that can have them."""
        resource, ids = here[0].resource, here[0].ids
        if (listed := find_holder(holders, resource, ids)) is not None:
            return listed
        able = [pod for pod in self._bound(True) if self._may_be_unlisted(pod, resource, ids)]
        if len(able) == 1:
            return DeviceHolder(able[0].namespace, able[0].name, "", resource, ids)
        if not able:
            raise ClusterError(f"the kubelet does not list {', '.join(ids)} under any pod; retrying")
        names = " or ".join(sorted(f"{pod.namespace}/{pod.name}" for pod in able))
        raise ClusterError(
            f"the kubelet lists no init containers, and it may be {names}: delete all but one of them, or let a "
            f"long-running container ask for {resource} too"
        )

    def _may_be_unlisted(self, pod: BoundPod, resource: str, ids: tuple[str, ...]) -> bool:
        """True if an init container asks for as many, and no later container that the kubelet would list."""
        listed = [at for at, one in enumerate(pod.containers) if not one.is_init and one.devices.get(resource)]
        after = [one for one in pod.containers[max(listed, default=-1) + 1 :] if one.devices.get(resource) == len(ids)]
        mine = [one for one in self._records.allocations if one.match.pod.uid == pod.uid and one.is_verified]
        known = [one for one in mine if one.match.is_init and one.match.container in {each.name for each in after}]
        return not pod.is_over and bool(after) and all(one.overlaps(resource, ids) for one in known)

    def _intended(self, here: Sequence[DeviceAllocation], holder: DeviceHolder) -> list[PodMatch] | str:
        """The devices intended for the containers that actually have these names."""
        users = self._containers(here[0].resource, len(here[0].ids), holder)
        if not isinstance(users, str) and (len(users) != len(here) or not self._is_consistent(here)):
            return MIXED_PODS
        return users

    def _is_consistent(self, here: Sequence[DeviceAllocation]) -> bool:
        """True if overlapping names have overlapping devices, and equal names have one owner."""
        names, mine = here[0].ids, here[0].match
        all_on = [one for one in self._records.allocations if one.overlaps(here[0].resource, names)]
        is_near = all(set(one.match.shares) & set(mine.shares) for one in all_on)
        return is_near and all(one.owner == here[0].owner for one in here)

    def _containers(self, resource: str, count: int, holder: DeviceHolder) -> list[PodMatch] | str:
        pod = self._pod(holder)
        if pod is None:
            return f"pod {holder.namespace}/{holder.pod} is not on this node, according to the API server"
        start_up = (one.name for one in pod.containers if one.is_init and one.devices.get(resource) == count)
        return containers_on_same_devices(resource, pod, holder.container or next(start_up, ""))

    def _pod(self, holder: DeviceHolder) -> BoundPod | None:
        return next((pod for pod in self._bound(False) if holder.pod_key == (pod.namespace, pod.name)), None)

    def _with_overlapping(self, here: Sequence[DeviceAllocation]) -> list[list[DeviceAllocation]]:
        """These allocations and those of the same pod with overlapping names; the kubelet never mixes pods there."""
        uid, resource = here[0].match.pod.uid, here[0].resource
        mine = [one for one in self._records.allocations if one.match.pod.uid == uid]
        names, before = set(here[0].ids), 0
        while len(names) > before:
            before = len(names)
            names.update(name for one in mine if one.overlaps(resource, names) for name in one.ids)
        every = dict.fromkeys(one.ids for one in mine if one.overlaps(resource, names))
        return [list(here), *(self._records.find(resource, ids) for ids in every if ids != here[0].ids)]

    def _correct(
        self, groups: list[list[DeviceAllocation]], holders: Sequence[DeviceHolder], holder: DeviceHolder, node: str
    ) -> list[Correction]:
        """The starting containers belong to another pod: swap the devices of both, or fail."""
        found: list[list[PodMatch]] = []
        for here in groups:
            actual = find_holder(holders, here[0].resource, here[0].ids) or holder
            meant = self._intended(here, actual) if actual.pod_key == holder.pod_key else MIXED_PODS
            if not isinstance(meant, str) and not are_interchangeable(here[0].match, meant[0]):
                meant = OTHER_SIZE
            if any(one.owner == here[0].owner and one.ids != here[0].ids for one in self._records.allocations):
                meant = MIXED_PODS  # another container has them already, under other names
            if isinstance(meant, str):
                raise ClusterError(_refusal_text(holder, groups[0][0].match, meant))
            found.append(meant)
        corrected = dict(self._records.corrected)
        for here, users in zip(groups, found, strict=True):
            if not can_swap(self._records, here, users, corrected):
                raise ClusterError(_refusal_text(holder, groups[0][0].match, MIXED_PODS))
        for here, users in zip(groups, found, strict=True):
            swap(self._records, self._sharing, here, users)
        mine, theirs = groups[0][0].match.pod, found[0][0].pod
        lines = {theirs.uid: (theirs, f"the kubelet started it before {mine.name}")}
        lines.setdefault(mine.uid, (mine, f"the kubelet started {theirs.name} before it"))
        return [self._correction(node, pod, reason) for pod, reason in lines.values()]

    def _undo(self, here: Sequence[DeviceAllocation], holders: Sequence[DeviceHolder], holder: DeviceHolder) -> None:
        """Undo unverified allocations that this pod took from others; verified ones stay."""
        every = [one for one in self._records.allocations if not one.is_verified]
        held = [(one, find_holder(holders, one.resource, one.ids)) for one in every]
        gone = [one for one, actual in held if one in here or (actual and actual.pod_key == holder.pod_key)]
        self._records.drop(gone)
        kept = {one.owner for one in self._records.allocations}
        for owner in dict.fromkeys(one.owner for one in gone if one.owner not in kept):
            self._sharing.release(owner)
        if (pod := self._pod(holder)) is not None:
            self.refused.add(pod.uid)

    def _correction(self, node: str, pod: BoundPod, reason: str) -> Correction:
        devices = decode_granted(self._records.corrected[pod.uid])
        return Correction(node, pod.namespace, pod.name, pod.uid, devices, reason)


def _refusal_text(holder: DeviceHolder, match: PodMatch, why: str) -> str:
    actual, intended = f"{holder.namespace}/{holder.pod}", f"{match.pod.namespace}/{match.pod.name}"
    if actual == intended:
        return f"pod {actual}: {why}"
    return f"pod {actual} was about to start on the devices of {intended}: {why}"
