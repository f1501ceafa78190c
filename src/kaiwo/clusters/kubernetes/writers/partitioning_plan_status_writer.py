"""PartitioningPlans of the cluster: read like files, and their status written when it says something else.

In:    the objects, and how each node stands to them.   Out: PartitioningPlans; phases, counts and a line for each node.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.decode.wire_objects import QueueMeta, Wire
from kaiwo.manifests import parse
from kaiwo.model.errors import ConfigError
from kaiwo.model.partitioning_plan import PartitioningPlan

PATH = "/apis/infrastructure.silogen.ai/v1alpha1/partitioningplans"
MOST_NODES = 10_000
FAILED, BUSY = ("Failed", "RolledBack"), ("Changing", "Draining", "Verifying")


class PlanObject(Wire):
    """A PartitioningPlan. Its spec is read by the same code as a file's."""

    metadata: QueueMeta
    spec: dict[str, Any] | None = None


class NodeLine(NamedTuple):
    """How one node stands to a plan; `phase` as the definition has them."""

    name: str
    phase: str
    mode: str
    message: str = ""


class PartitioningPlanStatusWriter:
    """Keeps the plans of the cluster, and writes how they stand."""

    def __init__(self, client: Client, report: Callable[..., None] = lambda *_, **__: None) -> None:
        self._client, self._report = client, report
        self.there: dict[str, PartitioningPlan] = {}
        self._generations: dict[str, int] = {}
        self._mistakes: dict[str, str] = {}
        self._written: dict[str, dict[str, Any]] = {}

    def read(self, item: PlanObject) -> PartitioningPlan | None:
        """What the watch brought. One with a mistake says so in its status, and nothing is done for it."""
        name = item.metadata.name
        self._generations[name] = item.metadata.generation
        document = {
            "apiVersion": "infrastructure.silogen.ai/v1alpha1",
            "kind": "PartitioningPlan",
            "metadata": {"name": name},
            "spec": item.spec or {},
        }
        try:
            (found,) = parse(document).partitioning
        except ConfigError as error:
            self._mistakes[name] = str(error)
            self.there.pop(name, None)
            return None
        self._mistakes.pop(name, None)
        return found

    def put(self, plan: PartitioningPlan) -> None:
        self.there[plan.name] = plan

    def drop(self, plan: PartitioningPlan) -> None:
        """It is gone; the nodes stay as they are."""
        for kept in (self.there, self._generations, self._written, self._mistakes):
            kept.pop(plan.name, None)

    async def show(self, lines: dict[str, list[NodeLine]]) -> None:
        """Write what is new."""
        for name in sorted({*self.there, *self._mistakes}):
            mistake, plan = self._mistakes.get(name, ""), self.there.get(name)
            phase, message = ("Degraded", mistake) if plan is None else phase_of(plan, lines.get(name, []))
            status = status_of(self._generations.get(name, 0), phase, message, lines.get(name, []))
            if self._written.get(name) != status:
                await self._write(name, status)

    async def _write(self, name: str, status: dict[str, Any]) -> None:
        try:
            await self._client.patch(f"{PATH}/{quote(name)}/status", msgspec.json.encode({"status": status}), tries=1)
            self._written[name] = status
        except (ApiError, UnreachableError) as error:
            if isinstance(error, ApiError) and error.is_not_found:
                self._mistakes.pop(name, None)
            else:
                self._report("plan-status-failed", level="warning", plan=name, error=str(error)[:300])


def phase_of(plan: PartitioningPlan, lines: Iterable[NodeLine]) -> tuple[str, str]:
    """The plan as a whole, and a sentence."""
    phases = [line.phase for line in lines]
    if plan.is_paused:
        return "Paused", "no further node is begun"
    if any(phase in FAILED for phase in phases):
        return "Degraded", next(line.message for line in lines if line.phase in FAILED)
    if phases and all(phase == "Done" for phase in phases):
        return "Completed", ""
    if any(phase in BUSY for phase in phases):
        return "Progressing", ""
    return "Pending", "only said, not done: dryRun" if plan.is_dry else "" if phases else "it selects no node"


def status_of(generation: int, phase: str, message: str, lines: Iterable[NodeLine]) -> dict[str, Any]:
    """As the definition has it."""
    nodes = [line._asdict() for line in lines][:MOST_NODES]
    return {
        "observedGeneration": generation,
        "phase": phase,
        "message": message,
        "matchedNodes": len(nodes),
        "succeededNodes": sum(node["phase"] == "Done" for node in nodes),
        "failedNodes": sum(node["phase"] in FAILED for node in nodes),
        "nodes": nodes,
    }
