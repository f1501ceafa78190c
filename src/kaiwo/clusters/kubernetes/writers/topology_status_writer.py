"""KaiwoTopologies: which domains the nodes of the cluster make, level by level, and who has no place in them.

In:    one object, and the labels of the nodes that are there.   Out: a Standing, and the status that says it.
Never: reads a clock, or keeps anything. The same nodes give the same standing.

Also: Write on every KaiwoTopology how it stands with the nodes that are there: `kubectl get kaiwotopologies`.
"""

import asyncio
import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from kaiwo.clusters.kubernetes.cache.node_cache import NodeBook
from kaiwo.clusters.kubernetes.client import ApiError, Client, StandbyError, UnreachableError
from kaiwo.clusters.kubernetes.decode.wire_objects import QueueMeta, Wire
from kaiwo.clusters.queue_access import first_names

PATH = "/apis/kaiwo.ai/v1alpha2/kaiwotopologies"
Labels = Mapping[str, Mapping[str, str]]  # by node


class Level(Wire):
    """One level, read from a label, from the written domains, or from both."""

    name: str
    node_label: str = ""


class Domain(Wire):
    """One that is written out."""

    name: str
    level: str
    parents: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class Spec(Wire):
    """From the widest level to the narrowest."""

    levels: tuple[Level, ...] = ()
    domains: tuple[Domain, ...] = ()


class TopologyObject(Wire):
    """A KaiwoTopology."""

    metadata: QueueMeta
    spec: Spec = msgspec.field(default_factory=Spec)
    status: dict[str, Any] | None = None


class LevelStanding(NamedTuple):
    """One level as the nodes make it."""

    name: str
    domains: int
    nodes: int  # that are in one of them
    why_not: str  # what the others lack


class Standing(NamedTuple):
    """A topology as the nodes make it."""

    levels: tuple[LevelStanding, ...]
    nodes: int  # with a place on every level
    out: tuple[str, ...]  # without one on some level
    mistake: str = ""  # why it means nothing, in one sentence
    unknown: tuple[str, ...] = ()  # nodes that it names and that are not there


def stand(spec: Spec, labels: Labels) -> Standing:
    """How a topology stands with these nodes."""
    mistake = _mistake(spec)
    parents = {} if mistake else {domain.name: domain.parents for domain in spec.domains}
    level_of = {domain.name: domain.level for domain in spec.domains}
    inside: dict[str, dict[str, set[str]]] = {level.name: {} for level in spec.levels}  # level -> domain -> nodes
    for domain in spec.domains:
        inside.setdefault(domain.level, {}).setdefault(domain.name, set())
    for level in spec.levels:
        for node, own in labels.items():
            if level.node_label and (value := own.get(level.node_label)):
                inside[level.name].setdefault(value, set()).add(node)
    for domain in spec.domains:
        for name in (domain.name, *_above(domain.name, parents)):
            if name in level_of:
                inside[level_of[name]][name].update(node for node in domain.nodes if node in labels)
    found = {name: set().union(*domains.values()) for name, domains in inside.items()}
    levels = tuple(_level(level, len(inside[level.name]), len(found[level.name])) for level in spec.levels)
    placed = set(labels).intersection(*found.values()) if found else set()
    unknown = sorted({node for domain in spec.domains for node in domain.nodes if node not in labels})
    return Standing(levels, len(placed), tuple(sorted(labels.keys() - placed)), mistake, tuple(unknown))


def write_status(standing: Standing, generation: int, before: Mapping[str, Any], now: str) -> dict[str, Any]:
    """As the definition has it. `before`: what is there, for the times of conditions that are as they were."""
    conditions = [
        _condition("Ready", not standing.mistake, "Sound", "Mistake", standing.mistake),
        _condition("Complete", not _gaps(standing), "EveryNodeHasAPlace", "NodesWithoutAPlace", _gaps(standing)),
    ]
    known = before.get("conditions") or []
    return {
        "observedGeneration": generation,
        "domains": sum(level.domains for level in standing.levels),
        "nodes": standing.nodes,
        "nodesWithoutPlace": len(standing.out),
        "levels": [{"name": each.name, "domains": each.domains, "nodes": each.nodes} for each in standing.levels],
        "message": standing.mistake or _gaps(standing),
        "conditions": [each | {"lastTransitionTime": _since(each, known, now)} for each in conditions],
    }


def _level(level: Level, domains: int, nodes: int) -> LevelStanding:
    lacks = f"the label {level.node_label}" if level.node_label else "a domain that names them"
    return LevelStanding(level.name, domains, nodes, lacks)


def _above(name: str, parents: Mapping[str, tuple[str, ...]]) -> list[str]:
    """All that contain it. There is no circle: that would be a mistake."""
    found: dict[str, None] = {}
    left = list(parents.get(name, ()))
    while left:
        each = left.pop()
        if each not in found:
            found[each] = None
            left += parents.get(each, ())
    return list(found)


def _mistake(spec: Spec) -> str:
    """What no schema sees: parents that are not there, or not wider."""
    rank = {level.name: at for at, level in enumerate(spec.levels)}
    level_of = {domain.name: domain.level for domain in spec.domains}
    labelled = {level.name for level in spec.levels if level.node_label}
    for domain in spec.domains:
        for parent in domain.parents:
            if parent not in level_of:
                if any(rank[name] < rank.get(domain.level, 0) for name in labelled):
                    continue  # a value of a wider level's label, which nodes may have or not
                return f"domain {domain.name} names the parent {parent}, which is not in domains; add it, or remove it"
            if rank.get(level_of[parent], 0) >= rank.get(domain.level, 0):
                return (
                    f"domain {domain.name} of level {domain.level} names the parent {parent} of level "
                    f"{level_of[parent]}, which is not wider; name one of a level that stands before it"
                )
    return ""


def _gaps(standing: Standing) -> str:
    """Nodes without a place, and names without a node; empty: there are none."""
    total, said = standing.nodes + len(standing.out), []
    for level in standing.levels:
        if level.nodes < total:
            missing = total - level.nodes
            said.append(f"{missing} of {total} nodes in no domain of {level.name}, for want of {level.why_not}")
    if standing.out:
        said.append(f"without a place: {first_names(standing.out)}")
    if standing.unknown:
        said.append(f"named, and not in the cluster: {first_names(standing.unknown)}")
    return "; ".join(said)


def _condition(kind: str, is_true: bool, well: str, ill: str, message: str) -> dict[str, Any]:
    status, reason = ("True", well) if is_true else ("False", ill)
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _since(condition: Mapping[str, Any], known: Iterable[Mapping[str, Any]], now: str) -> str:
    """The time is that of the last change."""
    same = ((each.get("type"), each.get("status")) == (condition["type"], condition["status"]) for each in known)
    times = [str(each.get("lastTransitionTime") or now) for each, is_same in zip(known, same, strict=True) if is_same]
    return times[0] if times else now


LOOK_S = 1.0  # so late a change of the nodes may be in the status


class TopologyStatus:
    """Keeps the objects, and writes while this is the leader."""

    def __init__(self, client: Client, nodes: NodeBook, report: Callable[..., None] = lambda *_, **__: None) -> None:
        self._client, self._nodes, self._report = client, nodes, report
        self._objects: dict[str, TopologyObject] = {}
        self._changes = 0
        self._task: asyncio.Task[None] | None = None
        self.writes = 0

    def start(self) -> None:
        """Begin to look after the status."""
        self._task = asyncio.create_task(self._run(), name="kaiwo-topologies")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def put(self, item: TopologyObject) -> None:
        """It is there, or different; also when somebody else wrote its status."""
        self._objects[item.metadata.name] = item
        self._changes += 1

    def drop(self, item: TopologyObject) -> None:
        """It is gone."""
        self._objects.pop(item.metadata.name, None)

    async def _run(self) -> None:
        seen: object = None
        while True:
            await asyncio.sleep(LOOK_S)
            now = (self._changes, self._nodes.changes)
            if not self._client.may_write:
                seen = None
            elif seen != now:
                seen = now if await self._write_all() else None

    async def _write_all(self) -> bool:
        """False: some of it could not be written, and is to be tried again."""
        labels = {name: node.labels for name, node in self._nodes.plain.items()}
        all_well = True
        for _, item in sorted(self._objects.items()):
            there, now = item.status or {}, datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            status = write_status(stand(item.spec, labels), item.metadata.generation, there, now)
            if any(there.get(key) != value for key, value in status.items()):
                all_well &= await self._write(item, there | status)
        return all_well

    async def _write(self, item: TopologyObject, status: dict[str, Any]) -> bool:
        name = item.metadata.name
        try:
            body = msgspec.json.encode({"status": status})
            await self._client.patch(f"{PATH}/{quote(name)}/status", body, tries=1)
        except (ApiError, UnreachableError) as error:
            if not isinstance(error, StandbyError) and not (isinstance(error, ApiError) and error.is_not_found):
                self._report("topology-status-failed", level="warning", topology=name, error=str(error)[:300])
            return False
        item.status = status
        self.writes += 1
        return True
