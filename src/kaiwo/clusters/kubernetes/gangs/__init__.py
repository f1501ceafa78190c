"""Gangs from the objects that people submit to Kubernetes: which pods start together, and how many must.

Pure: JSON objects in, gangs out. `GangTracker` keeps pods and owners and says which gangs an event touched.
"""

from kaiwo.clusters.kubernetes.gangs.gang import Gang, GangKey, GangRole
from kaiwo.clusters.kubernetes.gangs.gang_tracker import GangTracker
from kaiwo.clusters.kubernetes.gangs.members import Member, read_member
from kaiwo.clusters.kubernetes.gangs.owners import OwnerIndex
from kaiwo.clusters.kubernetes.gangs.registry import GangId, build_gang_of, build_gangs, find_gang, read_owner

__all__ = [
    "Gang",
    "GangId",
    "GangKey",
    "GangRole",
    "GangTracker",
    "Member",
    "OwnerIndex",
    "build_gang_of",
    "build_gangs",
    "find_gang",
    "read_member",
    "read_owner",
]
