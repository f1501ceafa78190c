"""Match claims with volumes: which volume can serve which claim, and on which nodes."""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import NamedTuple

from kaiwo.clusters.kubernetes.decode.affinity_rules import read_selector
from kaiwo.clusters.kubernetes.decode.pod_request import one_of, selector_terms
from kaiwo.clusters.kubernetes.decode.quantities import read_offered, read_requested
from kaiwo.clusters.kubernetes.decode.wire_objects import Claim, PersistentVolume, StorageClass
from kaiwo.model.affinity import NodeAlternatives, NodeRule, NodeRules, matches_node_rules
from kaiwo.model.amounts import memory

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
_NEW_NAMES = {ZONE: ZONE, REGION: REGION, OLD_ZONE: ZONE, OLD_REGION: REGION}
_NO_ZONE: NodeRules = tuple(NodeRule(key, "DoesNotExist") for key in _NEW_NAMES)
SELECTED_NODE = "volume.kubernetes.io/selected-node"
FILE_SYSTEM = "Filesystem"


class NodeConstraint(NamedTuple):
    """The rules that volumes impose on a node."""

    rules: NodeRules = ()
    choices: tuple[NodeAlternatives, ...] = ()

    def allows(self, labels: Mapping[str, str]) -> bool:
        return matches_node_rules(labels, self.rules, self.choices)


class ClaimNeeds(NamedTuple):
    """What a claim asks for, and what it already has."""

    key: tuple[str, str]  # namespace, name
    uid: str
    version: str
    class_name: str = ""
    volume: str = ""  # the one that it is bound to
    names_volume: bool = False  # it asks for a volume by name, and is not bound to it yet
    is_terminating: bool = False
    selected_node: str = ""  # the node on which a provisioner creates its volume
    size_bytes: int = 0
    modes: frozenset[str] = frozenset()
    volume_mode: str = FILE_SYSTEM
    selector: NodeRules = ()
    attributes: str = ""
    owner_uid: str = ""  # the pod that it was created for

    @property
    def description(self) -> str:
        """`10 GiB, ReadWriteOnce`."""
        return ", ".join((memory(-(-self.size_bytes // (1 << 20))), *sorted(self.modes)))


class CachedVolume(NamedTuple):
    name: str
    version: str
    where: NodeConstraint
    class_name: str = ""
    is_free: bool = False
    holder: tuple[str, str] = ("", "")  # the claim that it is for: namespace, name
    holder_uid: str = ""
    size_bytes: int = 0
    modes: frozenset[str] = frozenset()
    volume_mode: str = FILE_SYSTEM
    labels: tuple[tuple[str, str], ...] = ()
    attributes: str = ""

    def serves(self, need: ClaimNeeds) -> bool:
        """Whether it could be bound to the claim, or is about to be."""
        return (
            (self.is_for(need) or (self.is_free and not self.holder[1]))
            and self.class_name == need.class_name
            and self.size_bytes >= need.size_bytes
            and need.modes <= self.modes
            and self.volume_mode == need.volume_mode
            and self.attributes == need.attributes
            and matches_node_rules(dict(self.labels), need.selector, ())
        )

    def is_for(self, need: ClaimNeeds) -> bool:
        """Its `claimRef` names the claim."""
        return self.holder == need.key and self.holder_uid in ("", need.uid)


def read_claim(claim: Claim) -> ClaimNeeds:
    meta, spec = claim.metadata, claim.spec
    is_bound = claim.status.phase == "Bound"
    requests = (spec.resources.requests if spec.resources else None) or {}
    return ClaimNeeds(
        (meta.namespace, meta.name),
        meta.uid,
        meta.resource_version,
        spec.storage_class_name or "",
        spec.volume_name if is_bound else "",
        bool(spec.volume_name) and not is_bound,
        meta.deletion_timestamp is not None,
        (meta.annotations or {}).get(SELECTED_NODE, ""),
        read_requested("storage", requests.get("storage", 0)),
        frozenset(spec.access_modes or ()),
        spec.volume_mode or FILE_SYSTEM,
        read_selector(spec.selector) or (),
        spec.volume_attributes_class_name or "",
        next((each.uid for each in meta.owner_references or () if each.controller), ""),
    )


def read_volume(volume: PersistentVolume) -> CachedVolume:
    meta, spec = volume.metadata, volume.spec
    holder = spec.claim_ref
    return CachedVolume(
        meta.name,
        meta.resource_version,
        _read_where(volume),
        spec.storage_class_name,
        volume.status.phase == "Available" and meta.deletion_timestamp is None,
        (holder.namespace, holder.name) if holder else ("", ""),
        holder.uid if holder else "",
        read_offered("storage", (spec.capacity or {}).get("storage", 0)),
        frozenset(spec.access_modes or ()),
        spec.volume_mode or FILE_SYSTEM,
        tuple(sorted((meta.labels or {}).items())),
        spec.volume_attributes_class_name or "",
    )


def read_topologies(item: StorageClass) -> NodeAlternatives:
    """Where the class creates volumes; empty: everywhere."""
    terms = ((each.match_label_expressions or ()) for each in item.allowed_topologies or ())
    return tuple(tuple(NodeRule(rule.key, "In", rule.values or ()) for rule in term) for term in terms)


def alternatives(places: Iterable[NodeConstraint]) -> NodeAlternatives:
    """One of these must hold. Each local volume names one host: a thousand of them make one rule, not a thousand."""
    found: list[NodeRules] = []
    values: dict[str, dict[str, None]] = {}
    for where in dict.fromkeys(places):
        for parts in product(*where.choices):
            rules = (*where.rules, *(rule for part in parts for rule in part))
            if len(rules) == 1 and rules[0].operator == "In":
                values.setdefault(rules[0].key, {}).update(dict.fromkeys(rules[0].values))
            else:
                found.append(rules)
    return (*found, *((NodeRule(key, "In", tuple(sorted(all_of))),) for key, all_of in values.items()))


def _read_where(volume: PersistentVolume) -> NodeConstraint:
    """Its node affinity, and the zone that its labels name."""
    required = volume.spec.node_affinity and volume.spec.node_affinity.required
    rules, choices = one_of(selector_terms(required)) if required else ((), ())
    zones = [_zone(key, value) for key, value in sorted((volume.metadata.labels or {}).items()) if key in _NEW_NAMES]
    return NodeConstraint(rules, (*choices, *zones))


def _zone(key: str, value: str) -> NodeAlternatives:
    """`a__b` names two zones. A node without zone labels counts for every zone; a new label also meets an old name."""
    values = tuple(part.strip() for part in value.split("__"))
    new = _NEW_NAMES[key]
    by_new = ((NodeRule(key, "DoesNotExist"), NodeRule(new, "In", values)),) if new != key else ()
    return _NO_ZONE, (NodeRule(key, "In", values),), *by_new
