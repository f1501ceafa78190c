"""Pods, as far as gangs are concerned.

In:    one pod as JSON.   Out: a Member, or a sentence that says why it is none.
"""

import msgspec

from kaiwo.clusters.kubernetes.gangs.metadata import Metadata, Reference, TemplateSpec, Texts


class Member(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One pod of a gang, or a pod on its own."""

    name: str
    namespace: str = ""
    labels: Texts = {}
    annotations: Texts = {}
    owner: Reference | None = None
    node: str = ""
    phase: str = "Pending"
    is_ready: bool = False
    is_leaving: bool = False  # told to go: whoever wants it makes another one
    pod_group: str = ""
    workload: tuple[str, str, str] = ("", "", "")  # Workload, its pod group, the replica of it

    @property
    def is_alive(self) -> bool:
        """It waits or runs. What finished or leaves is no part of a gang any more."""
        return self.phase not in ("Succeeded", "Failed") and not self.is_leaving

    @property
    def has_succeeded(self) -> bool:
        return self.phase == "Succeeded"

    @property
    def is_bound(self) -> bool:
        return bool(self.node)


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str | None = None
    conditions: tuple[_Condition, ...] | None = None


class _Spec(TemplateSpec, frozen=True, gc=False, rename="camel"):
    node_name: str | None = None


class _Pod(msgspec.Struct, frozen=True, gc=False):
    metadata: Metadata
    spec: _Spec | None = None
    status: _Status | None = None


def read_member(raw: object) -> Member | str:
    """A pod as the API server gives it, decoded from JSON."""
    try:
        pod = msgspec.convert(raw, _Pod)
    except msgspec.ValidationError as fault:
        return f"a pod cannot be read ({fault}); it is in no gang"
    if not pod.metadata.name:
        return "a pod without a name cannot be read; it is in no gang"
    return _member(pod.metadata, pod.spec or _Spec(), pod.status or _Status())


def _member(metadata: Metadata, spec: _Spec, status: _Status) -> Member:
    workload = spec.workload_ref
    return Member(
        name=metadata.name or "",
        namespace=metadata.namespace or "",
        labels=metadata.labels or {},
        annotations=metadata.annotations or {},
        owner=metadata.owner,
        node=spec.node_name or "",
        phase=status.phase or "Pending",
        is_ready=any(each.type == "Ready" and each.status == "True" for each in status.conditions or ()),
        is_leaving=metadata.deletion_timestamp is not None,
        pod_group=(spec.scheduling_group and spec.scheduling_group.pod_group_name) or "",
        workload=(
            (workload.name or "", workload.pod_group or "", workload.pod_group_replica_key or "")
            if workload
            else ("", "", "")
        ),
    )
