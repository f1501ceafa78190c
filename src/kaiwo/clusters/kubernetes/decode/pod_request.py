"""Read what a pod requests: resources by the rules of Kubernetes, GPUs by our annotations, and the nodes it may use.

In:    a pod's spec and annotations.   Out: one PodRequest, shared by all pods that ask for exactly the same.
Never: drops a required rule silently. A pod with a rule that is not supported yet waits, with a reason.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.decode.affinity_rules import MAX_RULES, AffinityRules, count_rules, read_affinity_rules
from kaiwo.clusters.kubernetes.decode.quantities import largest_counted, read_requested
from kaiwo.clusters.kubernetes.decode.wire_objects import (
    AllocatedResources,
    Amounts,
    NodeSelector,
    PodSpec,
    Resources,
    Term,
)
from kaiwo.manifests.kinds.annotations import OUR_PREFIX, Annotations
from kaiwo.manifests.kinds.container_resources import largest, total
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.gpu_request import GpuFieldNames, resolve_gpus
from kaiwo.manifests.values.quantities import MIB
from kaiwo.model.affinity import VENDOR_LABEL, NodeAlternatives, NodePreference, NodeRule, NodeRules
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.gpus.gpu_models import RESOURCE_VENDORS
from kaiwo.model.request import Request, Toleration

SHARING_LABEL = OUR_PREFIX + "gpu-sharing"  # on nodes whose agent serves shares of a GPU
FIELD = "field:"  # prefix of the fields of a Kubernetes node that are labels of our Node
NODE_NAME = FIELD + "metadata.name"
MAX_NODE_TERMS = 100  # requirements of one pod in its node affinity: each is looked at on every node
MAX_TOLERATIONS = 100  # of one pod


class Claims(NamedTuple):
    names: tuple[str, ...] = ()
    own: tuple[str, ...] = ()  # of these, those of its ephemeral volumes


NO_CLAIMS = Claims()


class PodRequest(msgspec.Struct, frozen=True, gc=False):
    """What pods with the same spec ask for."""

    request: Request
    by_vendor: tuple[tuple[str, int], ...] = ()  # whole GPUs that the kubelet assigns
    claims: tuple[str, ...] = ()
    own_claims: tuple[str, ...] = ()  # of these, those that Kubernetes makes for the pod's ephemeral volumes
    affinity: AffinityRules | None = None  # its rules about other pods
    refusal: str = ""  # why Kaiwo cannot schedule such a pod

    @property
    def gpus_by_resource(self) -> int:
        return sum(count for _, count in self.by_vendor)


def read_pod_request(
    spec: PodSpec, gpu_annotations: Mapping[str, str], owner: str, claims: Claims = NO_CLAIMS
) -> PodRequest:
    amounts = {name: min(amount, largest_counted(name)) for name, amount in pod_amounts(spec).items()}
    whole = {name: amounts.pop(name) for name in RESOURCE_VENDORS if amounts.get(name)}
    plain = Request(
        cpu_milli=amounts.pop("cpu", 0),
        memory_mib=-(-amounts.pop("memory", 0) // MIB),
        extended=tuple(sorted((name, amount) for name, amount in amounts.items() if amount)),
    )
    rules, choices = read_rules(spec)
    affinity = read_affinity_rules(spec, rules, choices)
    try:
        request = _with_gpus(plain, whole, gpu_annotations, owner)
        request = replace(
            request,
            node_rules=request.node_rules + rules,
            node_choices=choices,
            prefers=_preferences(spec),
            tolerations=tuple(
                Toleration(item.key, item.operator, item.value, item.effect) for item in spec.tolerations or ()
            ),
        )
        refusal = _refusal(spec)
    except ConfigError as error:
        request, refusal = replace(plain, gpus=sum(whole.values())), str(error)
    by_vendor = tuple((RESOURCE_VENDORS[name], amount) for name, amount in whole.items())
    return PodRequest(request, by_vendor, claims.names, claims.own, affinity, refusal)


def pod_amounts(spec: PodSpec) -> dict[str, int]:
    """The sum of the containers, or the largest init container if that asks for more, plus the overhead."""
    allocations = {each.name: each for each in spec.allocated.containers} if spec.allocated else {}
    is_infeasible = spec.allocated is not None and spec.allocated.is_infeasible
    main = [_count(item.resources, allocations.get(item.name), is_infeasible) for item in spec.containers]
    staying: list[dict[str, int]] = []
    peak: dict[str, int] = {}
    for item in spec.init_containers or ():
        if item.restart_policy == "Always":
            staying.append(_count(item.resources, allocations.get(item.name), is_infeasible))
        else:
            peak = largest(peak, total([*staying, _effective(item.resources)]))
    if not spec.init_containers and len(main) == 1 and spec.resources is None and not spec.overhead:
        return main[0]
    whole = _count(spec.resources, spec.allocated.pod if spec.allocated else None, is_infeasible)
    for_pod = {name: whole.get(name, 0) for name in _effective(spec.resources)}
    return total([largest(total([*main, *staying]), peak) | for_pod, _read(spec.overhead)])


def read_rules(spec: PodSpec) -> tuple[NodeRules, tuple[NodeAlternatives, ...]]:
    rules = [NodeRule(key, "In", (value,)) for key, value in sorted((spec.node_selector or {}).items())]
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None or affinity.required is None:
        return tuple(rules), ()
    more, choices = one_of(selector_terms(affinity.required))
    return (*rules, *more), choices


def _preferences(spec: PodSpec) -> tuple[NodePreference, ...]:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    found = ((each.weight, tuple(_term_rules(each.preference))) for each in (affinity and affinity.preferred) or ())
    return tuple(NodePreference(weight, rules) for weight, rules in found if weight > 0 and rules)


def one_of(terms: NodeAlternatives) -> tuple[NodeRules, tuple[NodeAlternatives, ...]]:
    """One alternative alone is a rule like any other."""
    return (terms[0], ()) if len(terms) == 1 else ((), (terms,))


def selector_terms(selector: NodeSelector) -> NodeAlternatives:
    """Alternatives, each a conjunction. A term without a requirement matches nothing in Kubernetes: it is left out."""
    return tuple(rules for term in selector.node_selector_terms or () if (rules := tuple(_term_rules(term))))


def _term_rules(term: Term) -> Iterable[NodeRule]:
    for item in term.match_expressions or ():
        yield NodeRule(item.key, item.operator, item.values or ())
    for item in term.match_fields or ():
        yield NodeRule(FIELD + item.key, item.operator, item.values or ())


def _effective(resources: Resources | None) -> dict[str, int]:
    """A limit replaces a missing request; the server fills that in for most pods."""
    return _read(resources.limits) | _read(resources.requests) if resources else {}


def _count(resources: Resources | None, allocation: AllocatedResources | None, is_infeasible: bool) -> dict[str, int]:
    """While a resize is under way, the larger amount counts; if the node can never do it, only the allocated amount."""
    amounts = _effective(resources)
    if allocation is None or allocation.resources is None:
        return amounts
    has = largest(_read(allocation.resources.requests), _read(allocation.allocated_resources))
    return has if is_infeasible else largest(amounts, has)


def _read(amounts: Amounts | None) -> dict[str, int]:
    return {name: read_requested(name, value) for name, value in amounts.items()} if amounts else {}


def _with_gpus(plain: Request, whole: dict[str, int], gpu_annotations: Mapping[str, str], owner: str) -> Request:
    """Whole GPUs are requested by resource name; shares only by annotation, and only where an agent serves them."""
    if not whole and not any(key.partition("/")[2].startswith("gpu-") for key in gpu_annotations):
        return plain
    if len(whole) > 1:
        raise ConfigError(
            f"{owner} asks for {' and '.join(sorted(whole))}; one pod runs on one vendor's GPUs: keep one"
        )
    resource, count = next(iter(whole.items()), ("amd.com/gpu", 0))
    warnings: list[str] = []
    annotations = Annotations(owner)
    annotations.add(FieldReader({"annotations": dict(gpu_annotations)}, owner, warnings))
    gpu = resolve_gpus(annotations.written_gpus(count, "", ()), kubelet_field_names(annotations, resource), warnings)
    request = replace(plain, **gpu._asdict())
    is_share = request.is_fraction or request.is_memory
    if not whole:
        return replace(request, node_rules=(NodeRule(SHARING_LABEL, "In", ("true",)),)) if is_share else request
    rules = (NodeRule(VENDOR_LABEL + RESOURCE_VENDORS[resource], "Exists"),)
    if not is_share:
        return replace(request, node_rules=rules)
    check_share_count(owner, resource, count, request.gpus)
    return replace(
        request,
        node_rules=rules,
        gpu_milli=WHOLE_MILLI,
        gpu_mib=0,
        isolation="",
        least_grade="",
        device_mib=0,
        share_with=(),
    )


def kubelet_field_names(annotations: Annotations, resource: str) -> GpuFieldNames:
    """The field names for messages where the kubelet counts the vendor's resource, whole."""
    words = annotations.gpu_field_names(resource, annotations.path_of("gpu-models").field)
    return words._replace(kubelet_counts_whole=True)


def check_share_count(owner: str, resource: str, count: int, devices: int) -> None:
    """A share together with the vendor's resource: the kubelet assigns whole GPUs, whatever the annotations ask for."""
    if count != devices:
        raise ConfigError(
            f"{owner} asks for a share on each of {devices} devices and for {resource}: {count}, which the kubelet "
            f"hands out whole; remove {resource} to share devices"
        )


def _refusal(spec: PodSpec) -> str:
    """The first requirement that this version cannot meet. Such a pod must not be placed as if it had none."""
    if spec.resource_claims or any(item.resources and item.resources.claims for item in spec.containers):
        return "it asks for device claims (resourceClaims), which Kaiwo does not allocate yet; ask with amd.com/gpu"
    if (count := count_rules(spec)) > MAX_RULES:
        return f"it has {count} rules of one kind about other pods, and the maximum is {MAX_RULES}; use fewer"
    if (count := count_node_terms(spec)) > MAX_NODE_TERMS:
        return f"it has {count:,} rules about nodes, and the maximum is {MAX_NODE_TERMS}; use fewer, or label nodes"
    if len(spec.tolerations or ()) > MAX_TOLERATIONS:
        return f"it has {len(spec.tolerations or ()):,} tolerations, and the maximum is {MAX_TOLERATIONS}; use fewer"
    return ""


def count_node_terms(spec: PodSpec) -> int:
    """The single requirements in its node affinity."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    terms = affinity.required.node_selector_terms or () if affinity and affinity.required else ()
    preferred = [each.preference for each in (affinity and affinity.preferred) or ()]
    return sum(len(term.match_expressions or ()) + len(term.match_fields or ()) for term in (*terms, *preferred))
