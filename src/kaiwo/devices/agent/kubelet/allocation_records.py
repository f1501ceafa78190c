"""What was handed out to whom, on disk: the kubelet asks about it again after the agent has been restarted.

In:    allocations.   Out: the same ones, after a crash too.
"""

import os
from collections.abc import Collection, Sequence

import msgspec

from kaiwo.devices.agent.kubelet.match_pod import PodMatch


class Allocation(msgspec.Struct, frozen=True):
    """One container's devices: what the kubelet calls them, and what they are."""

    resource: str
    ids: tuple[str, ...]  # the kubelet's names, sorted
    match: PodMatch
    is_verified: bool = False

    @property
    def owner(self) -> str:
        """Unique among grants. Containers that use the same devices one after the other have one grant."""
        match = self.match
        return f"{match.pod.namespace}/{match.pod.name}/{match.pod.uid}/{match.held_as or match.container}"

    @property
    def served_key(self) -> tuple[str, str]:
        """Whose Allocate it was taken for."""
        return self.match.pod.uid, self.match.container

    def overlaps(self, resource: str, names: Collection[str]) -> bool:
        """It has some of these names."""
        return self.resource == resource and any(name in names for name in self.ids)


def is_earlier_init(one: PodMatch, other: PodMatch) -> bool:
    """A start-up container of the same pod: it has ended when the other begins."""
    return one.is_init and one.pod.uid == other.pod.uid and one.container != other.container


class _Saved(msgspec.Struct):
    allocations: list[Allocation] = []
    corrected: dict[str, str] = {}
    served: set[tuple[str, str]] = set()


class AllocationRecords:
    """All allocations that are in force."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._all: list[Allocation] = []
        self.corrected: dict[str, str] = {}  # pod uid: the devices it has, other than are written on it
        self.served: set[tuple[str, str]] = set()  # (pod uid, container) that had their Allocate
        self.problem = ""
        try:
            with open(path, "rb") as file:
                saved = msgspec.json.decode(file.read(), type=_Saved)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            self.problem = f"{path} is not understood and begins anew: {error}"
            return
        self._all, self.corrected, self.served = saved.allocations, saved.corrected, saved.served

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        return tuple(self._all)

    def find(self, resource: str, ids: Collection[str]) -> list[Allocation]:
        """By the kubelet's names: the containers of a pod that have exactly these, one after the other."""
        wanted = tuple(sorted(ids))
        return [one for one in self._all if one.resource == resource and one.ids == wanted]

    def add(self, allocation: Allocation) -> None:
        """Names that the kubelet gives out again belong to nobody else any more, but to those before it in the pod."""
        kept = [one for one in self._all if not one.overlaps(allocation.resource, allocation.ids)]
        before = [one for one in self._all if one not in kept and is_earlier_init(one.match, allocation.match)]
        self.served.add(allocation.served_key)
        self._save([*kept, *before, allocation])

    def drop(self, gone: Collection[Allocation]) -> None:
        """It was somebody else: those that were meant still wait, unless they have been served under other names."""
        kept = [one for one in self._all if one not in gone]
        self.served -= {one.served_key for one in gone} - {one.served_key for one in kept}
        self._save(kept)

    def replace(self, pairs: Sequence[tuple[Allocation, Allocation]]) -> None:
        """The second of each pair stands for the first now."""
        self._save([next((new for old, new in pairs if old == one), one) for one in self._all])

    def correct(self, devices: dict[str, str]) -> None:
        """These pods have other devices than are written on them."""
        self.corrected |= devices
        self._save(self._all)

    def swap_served(self, waits: tuple[str, str], had: tuple[str, str]) -> None:
        """It was the other one's Allocate."""
        self.served = self.served - {waits} | {had}
        self._save(self._all)

    def keep_only(self, uids: set[str]) -> list[Allocation]:
        """Forget all other pods; what they had."""
        gone = [one for one in self._all if one.match.pod.uid not in uids]
        if gone or self.corrected.keys() - uids or {uid for uid, _ in self.served} - uids:
            self.served = {pair for pair in self.served if pair[0] in uids}
            self.corrected = {uid: text for uid, text in self.corrected.items() if uid in uids}
            self._save([one for one in self._all if one.match.pod.uid in uids])
        return gone

    def _save(self, allocations: list[Allocation]) -> None:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        temporary = f"{self._path}.{os.getpid()}"
        with open(temporary, "wb") as file:
            file.write(msgspec.json.encode(_Saved(allocations, self.corrected, self.served)))
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, self._path)
        self._all = allocations
