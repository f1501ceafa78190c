"""Track which pods use which volume claims, and which may not: a claim may be for one pod, or for another pod.

In:    pods as they come and go; the known claims.   Out: the reason why a pod must wait for a claim.
"""

from collections.abc import Container, Iterable, Mapping

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.volumes.claim_matching import NodeConstraint
from kaiwo.clusters.kubernetes.volumes.volume_cache import Name, VolumeCache

ONE_POD = "ReadWriteOncePod"


class ClaimUsers:
    """`starts`: UIDs of the pods whose Binding is in flight; they use their claims already."""

    def __init__(self, volumes: VolumeCache, pods: Mapping[Key, CachedPod], starts: Container[str]) -> None:
        self._volumes, self._pods, self._starts = volumes, pods, starts
        self._users: dict[Name, set[Key]] = {}
        self.waiting: set[Key] = set()  # pods of ours that have no node yet

    def upsert_pod(self, pod: CachedPod, is_ours: bool) -> Iterable[Key]:
        """A pod is new or changed; the other pods that may depend on it."""
        (self.waiting.add if is_ours and not pod.node else self.waiting.discard)(pod.key)
        if pod.is_finished:
            return self.delete_pod(pod)
        for name in pod.spec.claims:
            self._users.setdefault((pod.namespace, name), set()).add(pod.key)
        return self._others(pod) if pod.node else ()

    def delete_pod(self, pod: CachedPod) -> Iterable[Key]:
        """A pod is finished or gone; the other pods that may have waited for it."""
        self.waiting.discard(pod.key)
        others = self._others(pod)
        for name in pod.spec.claims:
            users = self._users.get((pod.namespace, name), set())
            users.discard(pod.key)
            if not users:
                self._users.pop((pod.namespace, name), None)
        return others

    def rules(self, pod: CachedPod) -> NodeConstraint | str:
        """Where its claims can be used; a sentence: nowhere at the moment."""
        return self.refusal(pod) or self._volumes.rules(pod.namespace, pod.spec.claims)

    def refusal(self, pod: CachedPod, beside: Iterable[CachedPod] = ()) -> str:
        """Why it cannot use its claims now. `beside`: pods that are about to start with it."""
        for name in pod.spec.own_claims:
            need = self._volumes.claim(pod.namespace, name)
            if need is None:
                return f"its volume claim {name} is not there yet; Kubernetes makes it for its ephemeral volume"
            if need.owner_uid != pod.uid:
                return f"the volume claim {name} of its ephemeral volume belongs to something else; delete that claim"
        for name in self._for_one_pod(pod):
            users = [self._pods[key] for key in self._users.get((pod.namespace, name), ()) if key != pod.key]
            using = [each.name for each in users if each.node or each.uid in self._starts]
            using += [each.name for each in beside if each.namespace == pod.namespace and name in each.spec.claims]
            if using:
                return (
                    f"its volume claim {name} is for one pod at a time ({ONE_POD}), and pod {min(using)} uses it; "
                    "it waits until that one is gone"
                )
        return ""

    def _others(self, pod: CachedPod) -> set[Key]:
        found: set[Key] = set()
        for name in self._for_one_pod(pod):
            found |= self._users.get((pod.namespace, name), set())
        return found - {pod.key}

    def _for_one_pod(self, pod: CachedPod) -> list[str]:
        """Of its claims, those that only one pod may use."""
        needs = ((name, self._volumes.claim(pod.namespace, name)) for name in pod.spec.claims)
        return [name for name, need in needs if need is not None and ONE_POD in need.modes]
