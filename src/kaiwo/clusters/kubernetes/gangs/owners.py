"""Index the objects that own pods, and find the owners of a pod.

In:    objects as JSON, in any order.   Out: the chain of owners above a pod, nearest first.
Never: asks the API server. An object that the watch has not shown is missing from the index, and its gang says so.
"""

from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.gangs.members import Member
from kaiwo.clusters.kubernetes.gangs.metadata import Owner, Reference, Unreadable

MAX_DEPTH = 8  # owners above owners; real ones have four


class OwnerLink(NamedTuple):
    """One owner above a pod: its name, and the object where it has been seen."""

    reference: Reference
    owner: Owner | None


class OwnerIndex:
    """Every object seen above pods, by UID and by name."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Owner] = {}
        self._by_name: dict[tuple[str, str, str, str], Owner] = {}

    def upsert(self, owner: Owner) -> bool:
        """Take an object in. False: nothing that we read of it has changed."""
        known = self._by_name.get(_name_of(owner))
        if known == owner:
            return False
        if known is not None and known.uid != owner.uid:
            self._by_uid.pop(known.uid, None)
        self._by_uid[owner.uid] = owner
        self._by_name[_name_of(owner)] = owner
        return True

    def delete(self, owner: Owner) -> bool:
        """Forget an object. False: it was not there, or another one of its name has come since."""
        known = self._by_name.get(_name_of(owner))
        if known is None or known.uid != owner.uid:
            return False
        del self._by_name[_name_of(owner)]
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


def read_owner(raw: object, kinds: dict[tuple[str, str], type[Owner]]) -> Owner | str:
    """An object as the API server gives it; of a kind that nobody reads, only its metadata. Else the reason."""
    try:
        plain = msgspec.convert(raw, Owner)
    except msgspec.ValidationError as fault:
        return f"an object above pods cannot be read ({fault})"
    if not plain.kind or not plain.name:
        return "an object above pods without kind and name cannot be read"
    try:
        return msgspec.convert(raw, kinds.get((plain.group, plain.kind), Owner))
    except msgspec.ValidationError as fault:
        return Unreadable(plain.kind, plain.api_version, plain.metadata, str(fault))


def explain_unknown(owner: Owner | None, title: str) -> str:
    """Why the size of a gang is unknown."""
    if isinstance(owner, Unreadable):
        return f"{title} cannot be read ({owner.fault}), so how many pods it has is unknown"
    return f"{title} has not been seen yet, so how many pods it has is unknown"


def _name_of(owner: Owner) -> tuple[str, str, str, str]:
    return owner.group, owner.kind, owner.namespace, owner.name
