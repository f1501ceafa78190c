"""The words of the protocol (extender/v1 of kube-scheduler): its fields have capital letters, and null for nothing.

In:    JSON of kube-scheduler.   Out: what we read of it, and the answers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kaiwo.clusters.kubernetes.decode.wire_objects import NOTHING, Pod

TOP = 10  # the best that a node can be for an extender


class Words(msgspec.Struct, rename="pascal", gc=False):
    """Go's own names."""


class NodeList(msgspec.Struct):
    """Whole nodes, as kube-scheduler sends them to whom it takes to know none. They go back as they came."""

    items: list[msgspec.Raw] | None = None


class _Named(msgspec.Struct):
    name: str = ""


class _Node(msgspec.Struct):
    metadata: _Named


class Args(Words):
    """Of filter and prioritize."""

    pod: Pod
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class MetaPod(msgspec.Struct):
    """Who would go."""

    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(Words):
    """Who would go on one node."""

    pods: list[MetaPod] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _Uid(msgspec.Struct):
    uid: str = ""


class _Victim(msgspec.Struct):
    metadata: _Uid


class Victims(Words):
    """The same with whole pods."""

    pods: list[_Victim] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptArgs(Words):
    """Of preempt."""

    pod: Pod
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class BindArgs(Words):
    """Of bind."""

    pod_name: str
    pod_namespace: str
    node: str
    pod_uid: str = msgspec.field(name="PodUID", default="")


_node = msgspec.json.Decoder(_Node).decode


def names_of(args: Args) -> list[str]:
    """The nodes that are asked about."""
    if args.node_names is not None:
        return args.node_names
    return [_node(raw).metadata.name for raw in (args.nodes.items if args.nodes else None) or ()]


def filtered(args: Args, why_not: Mapping[str, str]) -> dict[str, Any]:
    """The nodes without those that will not do, in the form in which they came."""
    answer: dict[str, Any] = {"FailedNodes": dict(why_not), "Error": ""}
    if args.node_names is not None:
        return answer | {"NodeNames": [name for name in args.node_names if name not in why_not]}
    items = (args.nodes.items if args.nodes else None) or []
    return answer | {"Nodes": {"items": [raw for raw in items if _node(raw).metadata.name not in why_not]}}


def refused(args: Args, why: str) -> dict[str, Any]:
    """No node will ever do for this pod as it is: taking others' places would not help."""
    nothing: dict[str, Any] = {"NodeNames": []} if args.node_names is not None else {"Nodes": {"items": []}}
    return nothing | {"FailedAndUnresolvableNodes": dict.fromkeys(names_of(args), why), "Error": ""}


def priorities(scores: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"Host": name, "Score": score} for name, score in scores.items()]


def victims_of(args: PreemptArgs) -> dict[str, MetaVictims]:
    """By node, whoever would go, in the short form."""
    if args.node_name_to_meta_victims is not None:
        return args.node_name_to_meta_victims
    return {
        node: MetaVictims([MetaPod(pod.metadata.uid) for pod in each.pods or ()], each.num_pdb_violations)
        for node, each in (args.node_name_to_victims or {}).items()
    }


def preempted(victims: Mapping[str, MetaVictims], nodes: Sequence[str]) -> dict[str, Any]:
    """Only these nodes would do."""
    return {"NodeNameToMetaVictims": {node: victims[node] for node in nodes}}


__all__ = [
    "NOTHING",
    "TOP",
    "Args",
    "BindArgs",
    "MetaVictims",
    "PreemptArgs",
    "filtered",
    "names_of",
    "preempted",
    "priorities",
    "refused",
    "victims_of",
]
