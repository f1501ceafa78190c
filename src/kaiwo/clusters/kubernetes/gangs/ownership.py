"""The ownership of pods: the members of gangs, and an index of the objects that own them.

Never calls the API server: an object that the watch has not shown is missing from the index, and its gang says so.
"""

from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.gangs.metadata import FullName, Owner, Reference, Texts, Unreadable

MAX_DEPTH = 8  # owners above owners; real ones have four


class Member(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    name: str
    namespace: str = ""
    labels: Texts = {}
    annotations: Texts = {}
    owner: Reference | None = None
    node: str = ""
    phase: str = "Pending"
    is_ready: bool = False
    is_leaving: bool = False  # being deleted; its owner makes another one if it wants one
    pod_group: str = ""
    workload: tuple[str, str, str] = ("", "", "")  # Workload, its pod group, the replica of it

    @property
    def is_alive(self) -> bool:
        """Whether it waits or runs. A pod that has finished or is being deleted is no longer part of a gang."""
        return self.phase not in ("Succeeded", "Failed") and not self.is_leaving

    @property
    def has_succeeded(self) -> bool:
        return self.phase == "Succeeded"

    @property
    def is_bound(self) -> bool:
        return bool(self.node)


class OwnerLink(NamedTuple):
    """One owner above a pod: its name, and the object where it has been seen."""

    reference: Reference
    owner: Owner | None


class OwnerIndex:
    def __init__(self) -> None:
        self._by_uid: dict[str, Owner] = {}
        self._by_name: dict[FullName, Owner] = {}

    def upsert(self, owner: Owner) -> bool:
        """Add or replace an object. False: nothing that we read of it has changed."""
        known = self._by_name.get(owner.full_name)
        if known == owner:
            return False
        if known is not None and known.uid != owner.uid:
            self._by_uid.pop(known.uid, None)
        self._by_uid[owner.uid] = owner
        self._by_name[owner.full_name] = owner
        return True

    def delete(self, owner: Owner) -> bool:
        """Remove an object. False: it was not known, or another one of the same name has replaced it."""
        known = self._by_name.get(owner.full_name)
        if known is None or known.uid != owner.uid:
            return False
        del self._by_name[owner.full_name]
        self._by_uid.pop(owner.uid, None)
        return True

    def find(self, uid: str) -> Owner | None:
        return self._by_uid.get(uid) if uid else None

    def find_by_name(self, group: str, kind: str, namespace: str, name: str) -> Owner | None:
        return self._by_name.get((group, kind, namespace, name))

    def chain(self, member: Member) -> tuple[OwnerLink, ...]:
        """The owners above a pod, nearest first; it ends where an object has not been seen."""
        links: list[OwnerLink] = []
        reference = member.owner
        while reference is not None and len(links) < MAX_DEPTH:
            owner = self.find(reference.uid)
            links.append(OwnerLink(reference, owner))
            reference = owner.metadata.owner if owner is not None else None
        return tuple(links)


def explain_unknown(owner: Owner | None, title: str) -> str:
    if isinstance(owner, Unreadable):
        return f"{title} cannot be read ({owner.fault}), so how many pods it has is unknown"
    return f"{title} has not been seen yet, so how many pods it has is unknown"
