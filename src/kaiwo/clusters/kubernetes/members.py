"""A pod as the gang recogniser wants it.

In:    a SeenPod.   Out: a Member, with only the labels and annotations that decide about gangs.
"""

import msgspec

from kaiwo.clusters.kubernetes.gangs import Member
from kaiwo.clusters.kubernetes.gangs.labels import USED_ANNOTATIONS, USED_LABELS, keep_used
from kaiwo.clusters.kubernetes.gangs.metadata import TemplateSpec
from kaiwo.clusters.kubernetes.seen import SeenPod

_read_group = msgspec.json.Decoder(TemplateSpec).decode


def member_of(pod: SeenPod) -> Member:
    """One pod."""
    group = _read_group(pod.group_text) if pod.group_text else TemplateSpec()
    workload = group.workload_ref
    return Member(
        name=pod.name,
        namespace=pod.namespace,
        labels=keep_used(pod.labels, USED_LABELS),
        annotations=keep_used(pod.notes, USED_ANNOTATIONS),
        owner=next((owner for owner in pod.owners if owner.controller), None),
        node=pod.node,
        phase=pod.phase,
        is_ready=pod.is_ready,
        is_leaving=pod.is_going,
        pod_group=(group.scheduling_group and group.scheduling_group.pod_group_name) or "",
        workload=(workload.name or "", workload.pod_group or "", workload.pod_group_replica_key or "")
        if workload
        else ("", "", ""),
    )


def may_be_in_a_gang(pod: SeenPod) -> bool:
    """A pod without an owner, labels, annotations or a group stands alone: there is no need to look."""
    return bool(pod.owners or pod.labels_text or pod.notes_text or pod.group_text)
