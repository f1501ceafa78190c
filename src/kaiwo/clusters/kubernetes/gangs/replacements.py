"""Whether the owners of a lost pod may still replace it, and how long that takes at least."""

from kaiwo.clusters.kubernetes.gangs.kinds.job import Job
from kaiwo.clusters.kubernetes.gangs.kinds.training_jobs import TrainingJob
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex
from kaiwo.clusters.kubernetes.gangs.registry import OWNER_TYPES


def may_be_replaced(member: Member, owners: OwnerIndex) -> bool:
    """Not if nothing makes its pods, or if an owner is gone, is being deleted, is suspended, or has ended."""
    chain = owners.chain(member)
    for link in chain:
        owner = link.owner
        if owner is None:  # of a kind that is not read, nothing is known; of the others, the object is gone
            return (link.reference.group, link.reference.kind) not in OWNER_TYPES
        if not owner.makes_pods:
            return False
        if isinstance(owner, TrainingJob) and member.phase == "Failed" and not owner.replaces_failed(member):
            return False
    return bool(chain)


def replacement_delay_s(member: Member, owners: OwnerIndex) -> int:
    """How long its controller waits at least before it replaces the pod; 0: not at all, or that is unknown."""
    owner = owners.find(member.owner.uid) if member.owner else None
    return owner.delay_s if isinstance(owner, Job) and member.phase == "Failed" else 0
