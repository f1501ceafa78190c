"""Messages of kube-scheduler's protocol extender/v1, whose fields are in PascalCase and null when empty."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kaiwo.clusters.kubernetes.decode.wire_objects import Pod

MAX_SCORE = 10  # the highest score that an extender may give


class GoStruct(msgspec.Struct, rename="pascal", gc=False):
    """A struct whose fields are named as in Go."""


class NodeList(msgspec.Struct):
    """Whole nodes, which kube-scheduler sends to extenders that keep no cache. They are returned unchanged."""

    items: list[msgspec.Raw] | None = None


class _Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


class FilterArgs(GoStruct):
    pod: Pod
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class MetaPod(msgspec.Struct):
    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(GoStruct):
    pods: list[MetaPod] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class Victims(GoStruct):
    """MetaVictims with whole pods."""

    pods: list[_Object] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptArgs(GoStruct):
    pod: Pod
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class BindArgs(GoStruct):
    pod_name: str
    pod_namespace: str
    node: str
    pod_uid: str = msgspec.field(name="PodUID", default="")


_read_node = msgspec.json.Decoder(_Object).decode


def names_of(args: FilterArgs) -> list[str]:
    if args.node_names is not None:
        return args.node_names
    return [_read_node(raw).metadata.name for raw in (args.nodes.items if args.nodes else None) or ()]


def filtered(args: FilterArgs, reasons: Mapping[str, str]) -> dict[str, Any]:
    """The nodes without the refused ones, as names or as whole nodes, like in the request."""
    answer: dict[str, Any] = {"FailedNodes": dict(reasons), "Error": ""}
    if args.node_names is not None:
        return answer | {"NodeNames": [name for name in args.node_names if name not in reasons]}
    items = (args.nodes.items if args.nodes else None) or []
    return answer | {"Nodes": {"items": [raw for raw in items if _read_node(raw).metadata.name not in reasons]}}


def refused(args: FilterArgs, reason: str) -> dict[str, Any]:
    """No node can ever run this pod as it is: preemption would not help."""
    nothing: dict[str, Any] = {"NodeNames": []} if args.node_names is not None else {"Nodes": {"items": []}}
    return nothing | {"FailedAndUnresolvableNodes": dict.fromkeys(names_of(args), reason), "Error": ""}


def priorities(scores: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"Host": name, "Score": score} for name, score in scores.items()]


def victims_of(args: PreemptArgs) -> dict[str, MetaVictims]:
    if args.node_name_to_meta_victims is not None:
        return args.node_name_to_meta_victims
    return {
        node: MetaVictims([MetaPod(pod.metadata.uid) for pod in each.pods or ()], each.num_pdb_violations)
        for node, each in (args.node_name_to_victims or {}).items()
    }


def preempted(victims: Mapping[str, MetaVictims], nodes: Sequence[str]) -> dict[str, Any]:
    """Preemption helps on these nodes only."""
    return {"NodeNameToMetaVictims": {node: victims[node] for node in nodes}}
