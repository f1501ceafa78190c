"""What a kind of gang must be able to do. Each kind has a file of its own; `registry` has their order."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kaiwo.clusters.kubernetes.gangs.groups import Group, Key
from kaiwo.clusters.kubernetes.gangs.members import Member
from kaiwo.clusters.kubernetes.gangs.owners import Link, Owners


class Kind(NamedTuple):
    """`claim` says which of its gangs a pod belongs to, if any; `assemble` makes one gang of its pods alone."""

    claim: Callable[[Member, Sequence[Link], Owners], Key | None]
    assemble: Callable[[Key, Sequence[Member], Owners], Group | None]
