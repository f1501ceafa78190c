"""Keep the allocations of containers on disk, since the kubelet asks about them after the agent restarts."""

import os
from collections.abc import Collection, Sequence

import msgspec

from kaiwo.devices.agent.kubelet.match_pod import PodMatch
from kaiwo.devices.atomic_write import write_atomically


class DeviceAllocation(msgspec.Struct, frozen=True):
    """The devices of one container: the kubelet's names, and the granted shares."""

    resource: str
    ids: tuple[str, ...]  # the kubelet's names, sorted
    match: PodMatch
    is_verified: bool = False

    @property
    def owner(self) -> str:
        """The owner of the grant. Containers that use the same devices one after another share a grant."""
        match = self.match
        return f"{match.pod.namespace}/{match.pod.name}/{match.pod.uid}/{match.held_as or match.container}"

    @property
    def served_key(self) -> tuple[str, str]:
        """The (pod uid, container) that the Allocate call was assumed to be for."""
        return self.match.pod.uid, self.match.container

    def overlaps(self, resource: str, names: Collection[str]) -> bool:
        return self.resource == resource and any(name in names for name in self.ids)


def is_earlier_init(one: PodMatch, other: PodMatch) -> bool:
    """True if one is an init container of the same pod, which has ended when the other starts."""
    return one.is_init and one.pod.uid == other.pod.uid and one.container != other.container


class _Saved(msgspec.Struct):
    allocations: list[DeviceAllocation] = []
    corrected: dict[str, str] = {}
    served: set[tuple[str, str]] = set()


class AllocationRecords:
    def __init__(self, path: str) -> None:
        self._path = path
        self._all: list[DeviceAllocation] = []
        self.corrected: dict[str, str] = {}  # pod uid: its actual devices, if they differ from its annotation
        self.served: set[tuple[str, str]] = set()  # (pod uid, container) that have been allocated
        self.problem = ""
        try:
            with open(path, "rb") as file:
                saved = msgspec.json.decode(file.read(), type=_Saved)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            self.problem = f"{path} is invalid and starts empty: {error}"
            return
        self._all, self.corrected, self.served = saved.allocations, saved.corrected, saved.served

    @property
    def allocations(self) -> tuple[DeviceAllocation, ...]:
        return tuple(self._all)

    def find(self, resource: str, ids: Collection[str]) -> list[DeviceAllocation]:
        """The allocations with exactly these names: containers of a pod that use them one after another."""
        wanted = tuple(sorted(ids))
        return [one for one in self._all if one.resource == resource and one.ids == wanted]

    def add(self, allocation: DeviceAllocation) -> None:
        """Add an allocation; others lose its names, except earlier init containers of the same pod."""
        kept = [one for one in self._all if not one.overlaps(allocation.resource, allocation.ids)]
        before = [one for one in self._all if one not in kept and is_earlier_init(one.match, allocation.match)]
        self.served.add(allocation.served_key)
        self._save([*kept, *before, allocation])

    def drop(self, gone: Collection[DeviceAllocation]) -> None:
        """Remove allocations that went to another pod; their containers wait again unless served under other names."""
        kept = [one for one in self._all if one not in gone]
        self.served -= {one.served_key for one in gone} - {one.served_key for one in kept}
        self._save(kept)

    def replace(self, pairs: Sequence[tuple[DeviceAllocation, DeviceAllocation]]) -> None:
        self._save([next((new for old, new in pairs if old == one), one) for one in self._all])

    def correct(self, devices: dict[str, str]) -> None:
        self.corrected |= devices
        self._save(self._all)

    def swap_served(self, assumed: tuple[str, str], actual: tuple[str, str]) -> None:
        """Record that an Allocate call was for another (pod uid, container) than assumed."""
        self.served = self.served - {assumed} | {actual}
        self._save(self._all)

    def keep_only(self, uids: set[str]) -> list[DeviceAllocation]:
        """Remove the allocations of all other pods; return them."""
        gone = [one for one in self._all if one.match.pod.uid not in uids]
        if gone or self.corrected.keys() - uids or {uid for uid, _ in self.served} - uids:
            self.served = {pair for pair in self.served if pair[0] in uids}
            self.corrected = {uid: text for uid, text in self.corrected.items() if uid in uids}
            self._save([one for one in self._all if one.match.pod.uid in uids])
        return gone

    def _save(self, allocations: list[DeviceAllocation]) -> None:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        write_atomically(self._path, msgspec.json.encode(_Saved(allocations, self.corrected, self.served)))
        self._all = allocations
