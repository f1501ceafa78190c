"""Write the status of PartitioningPlans: a phase, counts, and a line for each node."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kaiwo.clusters.kubernetes.client import ApiError, Client
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import PARTITIONING_PLANS, PlanObject, read_partitioning_plan
from kaiwo.clusters.kubernetes.writers.coalescing_writer import Report, WriteError, report_failures
from kaiwo.clusters.kubernetes.writers.status_writer import StatusWriter
from kaiwo.model.gpus.partitioning_plan import PartitioningPlan

MAX_NODES = 10_000
FAILED, BUSY = ("Failed", "RolledBack"), ("Changing", "Draining", "Verifying")


class NodeProgress(NamedTuple):
    """How far one node is with a plan; `phase` as the custom resource definition names it."""

    name: str
    phase: str
    mode: str
    message: str = ""


class PartitioningPlanStatusWriter:
    def __init__(self, client: Client, report: Report) -> None:
        self.plans: dict[str, PartitioningPlan] = {}
        self._generations: dict[str, int] = {}
        self._problems: dict[str, str] = {}
        self._report_failure = report_failures(report, "plan-status-failed", "plan")
        self._writer = StatusWriter(client, PARTITIONING_PLANS, self._failed)
        self.close = self._writer.close

    def read(self, item: PlanObject) -> PartitioningPlan | None:
        """An object is new or changed. None: it cannot be read; its status will say why, and nothing else is done."""
        name = item.metadata.name
        self._generations[name] = item.metadata.generation
        plan = read_partitioning_plan(item)
        if isinstance(plan, str):
            self._problems[name] = plan
            self.plans.pop(name, None)
            return None
        self._problems.pop(name, None)
        return plan

    def upsert(self, plan: PartitioningPlan) -> None:
        self.plans[plan.name] = plan

    def delete(self, plan: PartitioningPlan) -> None:
        for known in (self.plans, self._generations, self._problems):
            known.pop(plan.name, None)
        self._writer.drop(plan.name)

    def publish(self, progress: dict[str, list[NodeProgress]]) -> None:
        for name in sorted({*self.plans, *self._problems}):
            nodes, plan = progress.get(name, []), self.plans.get(name)
            phase, message = ("Degraded", self._problems.get(name, "")) if plan is None else plan_phase(plan, nodes)
            self._writer.put_changed(name, status_fields(self._generations.get(name, 0), phase, message, nodes))

    def _failed(self, name: str, status: dict[str, Any], error: WriteError) -> None:
        if isinstance(error, ApiError) and error.is_not_found:
            self._problems.pop(name, None)  # the watch does not report the end of an object that cannot be read
        self._report_failure(name, status, error)


def plan_phase(plan: PartitioningPlan, nodes: Sequence[NodeProgress]) -> tuple[str, str]:
    phases = [node.phase for node in nodes]
    if plan.is_paused:
        return "Paused", "no further node is begun"
    if any(phase in FAILED for phase in phases):
        return "Degraded", next(node.message for node in nodes if node.phase in FAILED)
    if phases and all(phase == "Done" for phase in phases):
        return "Completed", ""
    if any(phase in BUSY for phase in phases):
        return "Progressing", ""
    return "Pending", "dryRun: nothing is changed" if plan.is_dry else "" if phases else "it selects no node"


def status_fields(generation: int, phase: str, message: str, nodes: Iterable[NodeProgress]) -> dict[str, Any]:
    listed = [node._asdict() for node in nodes][:MAX_NODES]
    return {
        "observedGeneration": generation,
        "phase": phase,
        "message": message,
        "matchedNodes": len(listed),
        "succeededNodes": sum(node["phase"] == "Done" for node in listed),
        "failedNodes": sum(node["phase"] in FAILED for node in listed),
        "nodes": listed,
    }
