"""Pods, as far as gangs are concerned."""

import msgspec

from kaiwo.clusters.kubernetes.gangs.metadata import Reference, Texts


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
        """It waits or runs. A pod that has finished or is being deleted is no longer part of a gang."""
        return self.phase not in ("Succeeded", "Failed") and not self.is_leaving

    @property
    def has_succeeded(self) -> bool:
        return self.phase == "Succeeded"

    @property
    def is_bound(self) -> bool:
        return bool(self.node)
