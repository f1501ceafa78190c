"""Where a pod's volumes let it go.

In:    claims and volumes as they change.   Out: node rules for a pod's claims, or the sentence why it must wait.
"""

from kaiwo.clusters.kubernetes.asks import selector_terms
from kaiwo.clusters.kubernetes.objects import Claim, PersistentVolume
from kaiwo.model.request import NodeRule

Rules = tuple[NodeRule, ...]


class Volumes:
    """The claims and volumes of the cluster, as far as they bind pods to nodes."""

    def __init__(self) -> None:
        self._volume_of: dict[tuple[str, str], str] = {}  # by claim; empty: not bound yet
        self._terms: dict[str, tuple[Rules, ...]] = {}  # by volume; one that may be used anywhere is not in it

    def put_claim(self, claim: Claim) -> bool:
        """True: it is new or different."""
        key = (claim.metadata.namespace, claim.metadata.name)
        volume = claim.spec.volume_name if claim.status.phase == "Bound" else ""
        changed = self._volume_of.get(key) != volume
        self._volume_of[key] = volume
        return changed

    def drop_claim(self, claim: Claim) -> bool:
        return self._volume_of.pop((claim.metadata.namespace, claim.metadata.name), None) is not None

    def put_volume(self, volume: PersistentVolume) -> bool:
        """True: it is different from before."""
        affinity = volume.spec.node_affinity
        terms = selector_terms(affinity.required) if affinity else ()
        before = self._terms.get(volume.metadata.name, ())
        if terms:
            self._terms[volume.metadata.name] = terms
        else:
            self._terms.pop(volume.metadata.name, None)
        return before != terms

    def drop_volume(self, volume: PersistentVolume) -> bool:
        return self._terms.pop(volume.metadata.name, None) is not None

    def rules(self, namespace: str, claims: tuple[str, ...]) -> Rules | str:
        """What the volumes behind these claims ask of a node; a sentence: they cannot be used yet."""
        rules: list[NodeRule] = []
        for name in claims:
            volume = self._volume_of.get((namespace, name))
            if volume is None:
                return f"its volume claim {name} does not exist; create it"
            if not volume:
                return f"its volume claim {name} is not bound to a volume yet"
            terms = self._terms.get(volume, ())
            if len(terms) > 1:
                return f"its volume {volume} names {len(terms)} alternative places, which Kaiwo cannot weigh yet"
            rules += terms[0] if terms else ()
        return tuple(dict.fromkeys(rules))
