"""Cache volumes, claims and storage classes, and the pods that use them: which nodes a pod's volumes allow.

Out:   node rules for a pod's claims, or the reason why it must wait; when it starts, what must be written first.
A claim whose class waits for its first consumer is bound by the scheduler: `reserve` chooses, the volume binder writes.
"""

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.pod_request import NODE_NAME
from kaiwo.clusters.kubernetes.decode.wire_objects import Claim, PersistentVolume, StorageClass
from kaiwo.clusters.kubernetes.volumes.claim_matching import (
    CachedVolume,
    ClaimNeeds,
    NodeConstraint,
    alternatives,
    read_claim,
    read_topologies,
    read_volume,
)
from kaiwo.model.affinity import NodeAlternatives, NodeRule, matches_node_rules

NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT_FOR_CONSUMER = "WaitForFirstConsumer"
ONE_POD = "ReadWriteOncePod"
Name = tuple[str, str]  # namespace, name of a claim


class ClaimBinding(NamedTuple):
    """The choice for one claim, which must be written before the pod can be bound."""

    claim: Name
    uid: str  # of the claim
    version: str  # of what is written: nothing that changed meanwhile is overwritten
    volume: str = ""  # the volume for the claim; empty: a provisioner creates one on `node`
    node: str = ""


class ReservedVolumes(NamedTuple):
    steps: tuple[ClaimBinding, ...] = ()
    fresh: tuple[ClaimBinding, ...] = ()  # of these, those not chosen earlier for another pod of the same claim


class CachedClass(NamedTuple):
    """A storage class."""

    waits_for_consumer: bool = False  # its claims are bound only when a pod uses them
    provisioner: str = NO_PROVISIONER
    topologies: NodeAlternatives = ()  # where it creates volumes; empty: everywhere


class VolumeCache:
    """The claims and volumes of the cluster, as far as they restrict the nodes of pods."""

    def __init__(self) -> None:
        self._claims: dict[Name, ClaimNeeds] = {}
        self._volumes: dict[str, CachedVolume] = {}
        self._classes: dict[str, CachedClass] = {}
        self._reserved: dict[Name, ClaimBinding] = {}  # decided, and not yet seen as bound

    def upsert_claim(self, claim: Claim) -> bool:
        """True: it is new or different."""
        need = read_claim(claim)
        before = self._claims.get(need.key)
        self._claims[need.key] = need
        if need.volume:
            self._reserved.pop(need.key, None)
        return before is None or before._replace(version=need.version) != need

    def delete_claim(self, claim: Claim) -> bool:
        key = (claim.metadata.namespace, claim.metadata.name)
        self._reserved.pop(key, None)
        return self._claims.pop(key, None) is not None

    def upsert_volume(self, item: PersistentVolume) -> bool:
        """True: it is new or different."""
        volume = read_volume(item)
        before = self._volumes.get(volume.name)
        self._volumes[volume.name] = volume
        return before is None or before._replace(version=volume.version) != volume

    def delete_volume(self, item: PersistentVolume) -> bool:
        return self._volumes.pop(item.metadata.name, None) is not None

    def upsert_class(self, item: StorageClass) -> bool:
        """True: it is new or different."""
        found = CachedClass(item.volume_binding_mode == WAIT_FOR_CONSUMER, item.provisioner, read_topologies(item))
        before = self._classes.get(item.metadata.name)
        self._classes[item.metadata.name] = found
        return before != found

    def delete_class(self, item: StorageClass) -> bool:
        return self._classes.pop(item.metadata.name, None) is not None

    def claim(self, namespace: str, name: str) -> ClaimNeeds | None:
        return self._claims.get((namespace, name))

    def rules(self, namespace: str, claims: tuple[str, ...]) -> NodeConstraint | str:
        """The rules that the volumes of these claims impose on a node, or the reason why they cannot be used yet."""
        rules: list[NodeRule] = []
        choices: list[NodeAlternatives] = []
        for name in claims:
            where = self._where(namespace, name)
            if isinstance(where, str):
                return where
            rules += where.rules
            choices += where.choices
        return NodeConstraint(tuple(dict.fromkeys(rules)), tuple(dict.fromkeys(choices)))

    def reserve(
        self, namespace: str, claims: Iterable[str], node: str, labels: Mapping[str, str]
    ) -> ReservedVolumes | str:
        """Choose volumes for the claims without one, for a pod that starts on this node; or say why there is none.

        What is chosen is reserved until it is bound, or `release`d.
        """
        steps: list[ClaimBinding] = []
        fresh: list[ClaimBinding] = []
        claims = tuple(claims)
        if isinstance(where := self.rules(namespace, claims), str):
            return where  # something changed since the start was decided
        needs = [need for name in claims if not (need := self._claims[namespace, name]).volume]
        for need in sorted(needs, key=lambda each: each.size_bytes):
            step = self._reserved.get(need.key) or self._choose(need, node, labels)
            if isinstance(step, str) or not self._serves(step, node, labels):
                self.release(fresh)
                return step if isinstance(step, str) else f"its volume claim {need.key[1]} gets a volume elsewhere"
            if need.key not in self._reserved:
                self._reserved[need.key] = step
                fresh.append(step)
            steps.append(step)
        return ReservedVolumes(tuple(steps), tuple(fresh))

    def release(self, steps: Iterable[ClaimBinding]) -> None:
        """The start failed: drop the choices that were made for it."""
        for step in steps:
            if self._reserved.get(step.claim) == step:
                del self._reserved[step.claim]

    def binding_state(self, step: ClaimBinding, labels: Mapping[str, str]) -> str | None:
        """Empty: the claim is bound to a volume that the node can use. None: not yet. A sentence: it never will be."""
        name = step.claim[1]
        need = self._claims.get(step.claim)
        if need is None or need.uid != step.uid:
            return f"its volume claim {name} is gone"
        volume = self._volumes.get(need.volume or step.volume)
        if need.volume:
            if volume is None:
                return None
            return "" if volume.where.allows(labels) else f"its volume claim {name} got a volume elsewhere"
        if step.volume and (volume is None or (volume.holder[1] and not volume.is_for(need))):
            return f"the volume {step.volume} for its claim {name} is gone, or belongs to another claim"
        return None

    def is_undone(self, step: ClaimBinding, written: int) -> bool:
        """Whether the provisioner removed the node from the claim again, whose version `written` had it: it gave up."""
        need = self._claims.get(step.claim)
        return need is not None and int(need.version) >= written and need.selected_node != step.node

    def _where(self, namespace: str, name: str) -> NodeConstraint | str:
        need = self.claim(namespace, name)
        if need is None:
            return f"its volume claim {name} does not exist; create it"
        if need.is_terminating:
            return f"its volume claim {name} is being deleted; make another one"
        if not need.volume:
            return self._where_unbound(need)
        volume = self._volumes.get(need.volume)
        if volume is None:
            return f"the volume {need.volume} of its claim {name} does not exist; create the claim again"
        return volume.where

    def _where_unbound(self, need: ClaimNeeds) -> NodeConstraint | str:
        """Where a claim without a volume could get one."""
        name = need.key[1]
        if need.class_name and need.class_name not in self._classes:
            return f"its volume claim {name} names storage class {need.class_name}, which does not exist; create it"
        kind = self._classes.get(need.class_name, CachedClass())
        if not kind.waits_for_consumer or need.names_volume:
            return f"its volume claim {name} is not bound to a volume yet; kubectl describe pvc {name} says why"
        taken = self._reserved.get(need.key)
        if node := need.selected_node or (taken.node if taken else ""):
            return NodeConstraint((NodeRule(NODE_NAME, "In", (node,)),))
        if taken and taken.volume in self._volumes:
            return self._volumes[taken.volume].where
        if kind.provisioner != NO_PROVISIONER and not kind.topologies:
            return NodeConstraint()
        places = [*alternatives(volume.where for volume in self._fitting(need)), *kind.topologies]
        if () in places:
            return NodeConstraint()
        if not places:
            return (
                f"no free volume of class {need.class_name} serves its claim {name} ({need.description}), "
                "and the class makes none; create one"
            )
        return NodeConstraint((), (tuple(dict.fromkeys(places)),))

    def _choose(self, need: ClaimNeeds, node: str, labels: Mapping[str, str]) -> ClaimBinding | str:
        """The smallest existing volume that fits; if there is none, a provisioner creates one."""
        fitting = [] if need.selected_node else self._fitting(need)
        here = [volume for volume in fitting if volume.where.allows(labels)]
        if here:
            best = min(here, key=lambda volume: (not volume.is_for(need), volume.size_bytes, volume.name))
            return ClaimBinding(need.key, need.uid, best.version, volume=best.name)
        kind = self._classes.get(need.class_name, CachedClass())
        is_made_here = not kind.topologies or matches_node_rules(labels, (), (kind.topologies,))
        if kind.provisioner == NO_PROVISIONER or not is_made_here:
            return f"node {node} has no free volume for its claim {need.key[1]} ({need.description})"
        return ClaimBinding(need.key, need.uid, need.version, node=node)

    def _serves(self, step: ClaimBinding, node: str, labels: Mapping[str, str]) -> bool:
        """Whether the choice works on this node: it may have been made for another pod of the same claim."""
        if step.node:
            need = self._claims[step.claim]
            return node == step.node == (need.selected_node or step.node)
        volume = self._volumes.get(step.volume)
        return volume is not None and volume.where.allows(labels)

    def _fitting(self, need: ClaimNeeds) -> list[CachedVolume]:
        taken = {step.volume for key, step in self._reserved.items() if key != need.key}
        fitting = [volume for volume in self._volumes.values() if volume.name not in taken and volume.serves(need)]
        own = [volume for volume in fitting if volume.is_for(need)]
        return own or fitting


class ClaimUsers:
    """Which pods use which claims, and which pods may not: a claim may allow one pod only, or belong to another pod.

    `starts`: UIDs of the pods whose Binding is in flight; they use their claims already.
    """

    def __init__(self, volumes: VolumeCache, pods: Mapping[Key, CachedPod], starts: Container[str]) -> None:
        self._volumes, self._pods, self._starts = volumes, pods, starts
        self._users: dict[Name, set[Key]] = {}
        self.waiting: set[Key] = set()  # pods of ours that have no node yet

    def upsert_pod(self, pod: CachedPod, is_ours: bool) -> Iterable[Key]:
        """A pod is new or changed. Returns the other pods that may depend on it."""
        (self.waiting.add if is_ours and not pod.node else self.waiting.discard)(pod.key)
        if pod.is_finished:
            return self.delete_pod(pod)
        for name in pod.spec.claims:
            self._users.setdefault((pod.namespace, name), set()).add(pod.key)
        return self._others(pod) if pod.node else ()

    def delete_pod(self, pod: CachedPod) -> Iterable[Key]:
        """A pod is finished or gone. Returns the other pods that may have waited for it."""
        self.waiting.discard(pod.key)
        others = self._others(pod)
        for name in pod.spec.claims:
            users = self._users.get((pod.namespace, name), set())
            users.discard(pod.key)
            if not users:
                self._users.pop((pod.namespace, name), None)
        return others

    def rules(self, pod: CachedPod) -> NodeConstraint | str:
        """The nodes where its claims can be used, or the reason why they cannot be used now."""
        return self.refusal(pod) or self._volumes.rules(pod.namespace, pod.spec.claims)

    def refusal(self, pod: CachedPod, others: Iterable[CachedPod] = ()) -> str:
        """Why it cannot use its claims now. `others`: pods that are about to start with it."""
        for name in pod.spec.own_claims:
            need = self._volumes.claim(pod.namespace, name)
            if need is None:
                return f"its volume claim {name} is not there yet; Kubernetes makes it for its ephemeral volume"
            if need.owner_uid != pod.uid:
                return f"the volume claim {name} of its ephemeral volume belongs to something else; delete that claim"
        for name in self._for_one_pod(pod):
            users = [self._pods[key] for key in self._users.get((pod.namespace, name), ()) if key != pod.key]
            using = [each.name for each in users if each.node or each.uid in self._starts]
            using += [each.name for each in others if each.namespace == pod.namespace and name in each.spec.claims]
            if using:
                return (
                    f"its volume claim {name} is for one pod at a time ({ONE_POD}), and pod {min(using)} uses it; "
                    "it waits until that one is gone"
                )
        return ""

    def _others(self, pod: CachedPod) -> set[Key]:
        users = (self._users.get((pod.namespace, name), set()) for name in self._for_one_pod(pod))
        return set().union(*users) - {pod.key}

    def _for_one_pod(self, pod: CachedPod) -> list[str]:
        """Of its claims, those that only one pod may use."""
        needs = ((name, self._volumes.claim(pod.namespace, name)) for name in pod.spec.claims)
        return [name for name, need in needs if need is not None and ONE_POD in need.modes]
