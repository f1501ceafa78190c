"""What was handed out to whom, on disk: the kubelet asks about it again after the agent has been restarted.

In:    allocations.   Out: the same ones, after a crash too.
"""

import os

import msgspec

from kaiwo.devices.agent.kubelet.matching import Match


class Allocation(msgspec.Struct, frozen=True):
    """One container's devices: what the kubelet calls them, and what they are."""

    resource: str
    ids: tuple[str, ...]  # the kubelet's names, sorted
    match: Match
    is_verified: bool = False

    @property
    def owner(self) -> str:
        """Unique among grants."""
        return f"{self.match.pod.namespace}/{self.match.pod.name}/{self.match.pod.uid}/{self.match.container}"


class _Saved(msgspec.Struct):
    allocations: list[Allocation] = []
    corrected: dict[str, str] = {}
    served: set[tuple[str, str]] = set()


class Book:
    """All allocations that are in force."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._all: list[Allocation] = []
        self.corrected: dict[str, str] = {}  # pod uid: the devices it has, other than are written on it
        self.served: set[tuple[str, str]] = set()  # (pod uid, container) that had their Allocate
        self.trouble = ""
        try:
            with open(path, "rb") as file:
                saved = msgspec.json.decode(file.read(), type=_Saved)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            self.trouble = f"{path} is not understood and begins anew: {error}"
            return
        self._all, self.corrected, self.served = saved.allocations, saved.corrected, saved.served

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        return tuple(self._all)

    def find(self, resource: str, ids: list[str]) -> Allocation | None:
        """By the kubelet's names: all of them, or some. A container may go on with those of an init container."""
        wanted = set(ids)
        found = [one for one in self._all if one.resource == resource and wanted <= set(one.ids)]
        return min(found, key=lambda one: len(one.ids), default=None)

    def add(self, allocation: Allocation) -> None:
        """Names that the kubelet gives out again belong to nobody else any more."""
        taken = set(allocation.ids)
        kept = [one for one in self._all if one.resource != allocation.resource or not taken & set(one.ids)]
        self.served.add((allocation.match.pod.uid, allocation.match.container))
        self._save([*kept, allocation])

    def replace(self, old: Allocation, new: Allocation) -> None:
        self._save([new if one == old else one for one in self._all])

    def correct(self, devices: dict[str, str]) -> None:
        """These pods have other devices than are written on them."""
        self.corrected |= devices
        self._save(self._all)

    def exchange_served(self, waits: tuple[str, str], had: tuple[str, str]) -> None:
        """It was the other one's Allocate."""
        self.served = self.served - {waits} | {had}
        self._save(self._all)

    def keep_only(self, uids: set[str]) -> list[Allocation]:
        """Forget all other pods; what they had."""
        gone = [one for one in self._all if one.match.pod.uid not in uids]
        if gone or self.corrected.keys() - uids:
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
