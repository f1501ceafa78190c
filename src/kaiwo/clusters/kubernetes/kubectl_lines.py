"""The kubectl commands for what only people may do to the objects of a workload, with their namespace and names.

In:    a workload's pods and the object above them.   Out: a line that can be pasted.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.gangs.metadata import Reference

MAX_PODS = 20  # that a line names


class WorkloadObjects(NamedTuple):
    """What a workload consists of: its pods, and the object that makes them; None: nothing makes them again."""

    pods: Sequence[CachedPod]
    owner: Reference | None

    @property
    def _kubectl(self) -> str:
        return f"kubectl -n {self.pods[0].namespace}"

    def _pod_names(self) -> str:
        names = [pod.name for pod in self.pods]
        more = f"   (and {len(names) - MAX_PODS} more pods)" if len(names) > MAX_PODS else ""
        return " ".join(names[:MAX_PODS]) + more

    def _owner_name(self) -> str:
        """`job.batch train`, as kubectl takes it."""
        assert self.owner is not None
        group = f".{self.owner.group}" if self.owner.group else ""
        return f"{self.owner.kind.lower()}{group} {self.owner.name}"

    @property
    def cancel(self) -> str:
        return f"cancel it with: {self.stop}"

    @property
    def stop(self) -> str:
        named = f"pod {self._pod_names()}" if self.owner is None else self._owner_name()
        return f"{self._kubectl} delete {named}"

    @property
    def requeue(self) -> str:
        if self.owner is None:
            return (
                "nothing makes its pods again when they are gone; save them, delete them and create them again: "
                f"{self._kubectl} get pod {self._pod_names()} -o yaml > pods.yaml"
            )
        return (
            f"delete its pods, and {self._owner_name()} makes new ones: {self._kubectl} delete pod {self._pod_names()}"
        )

    @property
    def resize(self) -> str:
        if self.owner is None:
            named = f"pod {self._pod_names()}"
        else:
            named = self._owner_name()
        return (
            f"change its manifest and create it again: {self._kubectl} get {named} -o yaml > work.yaml; then "
            f"{self._kubectl} replace --force -f work.yaml"
        )

    def annotate_owner(self, key: str) -> str:
        return f"remove it there: {self._kubectl} annotate {self._owner_name()} {key}-"
