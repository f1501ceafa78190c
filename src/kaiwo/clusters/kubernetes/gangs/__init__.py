"""Gangs from the objects that people submit to Kubernetes: which pods start together, and how many must.

Pure: JSON objects in, groups out. `Book` keeps pods and owners and says which gangs an event touched.
"""

from kaiwo.clusters.kubernetes.gangs.gang import Group, GroupRole, Key
from kaiwo.clusters.kubernetes.gangs.gang_tracker import Book
from kaiwo.clusters.kubernetes.gangs.members import Member, read_member
from kaiwo.clusters.kubernetes.gangs.owners import Owners
from kaiwo.clusters.kubernetes.gangs.registry import Place, group_of, groups_of, place_of, read_owner

__all__ = [
    "Book",
    "Group",
    "GroupRole",
    "Key",
    "Member",
    "Owners",
    "Place",
    "group_of",
    "groups_of",
    "place_of",
    "read_member",
    "read_owner",
]
