"""Where a pod's volumes let it go.

In:    claims and volumes as they change.   Out: node rules for a pod's claims, or the sentence why it must wait.
"""

from typing import NamedTuple

from kaiwo.clusters.kubernetes.asks import one_of, selector_terms
from kaiwo.clusters.kubernetes.objects import Claim, PersistentVolume
from kaiwo.model.node_rules import Choice, NodeRule, Rules

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
_NEW_NAMES = {ZONE: ZONE, REGION: REGION, OLD_ZONE: ZONE, OLD_REGION: REGION}
_NO_ZONE: Rules = tuple(NodeRule(key, "DoesNotExist") for key in _NEW_NAMES)


class Where(NamedTuple):
    """What volumes ask of a node."""

    rules: Rules = ()
    choices: tuple[Choice, ...] = ()


class Volumes:
    """The claims and volumes of the cluster, as far as they bind pods to nodes."""

    def __init__(self) -> None:
        self._volume_of: dict[tuple[str, str], str] = {}  # by claim; empty: not bound yet
        self._going: set[tuple[str, str]] = set()  # claims that are being deleted
        self._where: dict[str, Where] = {}  # by volume

    def put_claim(self, claim: Claim) -> bool:
        """True: it is new or different."""
        key = (claim.metadata.namespace, claim.metadata.name)
        volume = claim.spec.volume_name if claim.status.phase == "Bound" else ""
        is_going = claim.metadata.deletion_timestamp is not None
        changed = self._volume_of.get(key) != volume or is_going != (key in self._going)
        self._volume_of[key] = volume
        (self._going.add if is_going else self._going.discard)(key)
        return changed

    def drop_claim(self, claim: Claim) -> bool:
        key = (claim.metadata.namespace, claim.metadata.name)
        self._going.discard(key)
        return self._volume_of.pop(key, None) is not None

    def put_volume(self, volume: PersistentVolume) -> bool:
        """True: it is different from before."""
        where = _read(volume)
        before = self._where.get(volume.metadata.name)
        self._where[volume.metadata.name] = where
        return before != where

    def drop_volume(self, volume: PersistentVolume) -> bool:
        return self._where.pop(volume.metadata.name, None) is not None

    def rules(self, namespace: str, claims: tuple[str, ...]) -> Where | str:
        """What the volumes behind these claims ask of a node; a sentence: they cannot be used yet."""
        rules: list[NodeRule] = []
        choices: list[Choice] = []
        for name in claims:
            volume = self._volume_of.get((namespace, name))
            if volume is None:
                return f"its volume claim {name} does not exist; create it"
            if (namespace, name) in self._going:
                return f"its volume claim {name} is being deleted; make another one"
            if not volume:
                return f"its volume claim {name} is not bound to a volume yet"
            where = self._where.get(volume)
            if where is None:
                return f"the volume {volume} of its claim {name} does not exist; make the claim anew"
            rules += where.rules
            choices += where.choices
        return Where(tuple(dict.fromkeys(rules)), tuple(dict.fromkeys(choices)))


def _read(volume: PersistentVolume) -> Where:
    """Its node affinity, and the zone that its labels name."""
    affinity = volume.spec.node_affinity
    rules: Rules = ()
    choices: tuple[Choice, ...] = ()
    if affinity is not None and affinity.required is not None:
        rules, choices = one_of(selector_terms(affinity.required))
    zones = [_zone(key, value) for key, value in sorted((volume.metadata.labels or {}).items()) if key in _NEW_NAMES]
    return Where(rules, (*choices, *zones))


def _zone(key: str, value: str) -> Choice:
    """`a__b` names two zones. A node without such a label is in every zone; an old name is also met by the new one."""
    values = tuple(part.strip() for part in value.split("__"))
    new = _NEW_NAMES[key]
    if new == key:
        return _NO_ZONE, (NodeRule(key, "In", values),)
    return _NO_ZONE, (NodeRule(key, "In", values),), (NodeRule(key, "DoesNotExist"), NodeRule(new, "In", values))
