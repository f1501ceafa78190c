"""A job of a case becomes one workload, and its tasks the pods of that.

In:    a job.   Out: the workload, the pods that hold places, and which task is which pod.
The equal tasks of one pod set are one role. Where they are unequal and only some must run, a role is a run of equal
neighbours in the order of the tasks: so the first of them are the minimum, and the others follow in their order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from msgspec.structs import replace

from kaiwo.model.network.constraint import STATED, TopologyConstraint
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Role, SubGroup, Workload, has_minimum
from tests.conformance.kai.machines import Devices
from tests.conformance.kai.requests import Requests

Case = dict[str, Any]
NOW_S = 100_000  # the moment at which a case is played
RAN_S = 60  # where the cases come from, all that runs began a minute ago, however old it is
PHASES = {
    "Allocated": Phase.ASSUMED,
    "Binding": Phase.ASSUMED,
    "Bound": Phase.ASSUMED,
    "Running": Phase.RUNNING,
    "Releasing": Phase.RELEASING,
    "StuckInReleasing": Phase.STUCK,
}
OVER = ("Succeeded", "Failed")
ASIDE = (*OVER, "Gated")  # tasks that want no place


@dataclass
class LoadedJob:
    """A job in our words."""

    workload: Workload
    pods: list[Pod]
    task_of: dict[str, str] = field(default_factory=dict)  # pod -> task id


class Part(NamedTuple):
    """Equal tasks of one pod set, and how many of them must run."""

    label: str
    group: str
    request: Request
    tasks: list[Case]
    minimum: int


def load_job(job: Case, requests: Requests, devices: Devices) -> LoadedJob:
    """The whole job. Tasks are in their order: the more important first, then by id as a string."""
    tasks = sorted(job["tasks"], key=lambda task: (-task.get("task_priority", 0), str(task["id"])))
    minimums, groups = dict(pod_sets(job["subgroups"])), _sub_groups(job["subgroups"])
    for task in tasks:  # tasks of no pod set run all together
        minimums.setdefault(set_of(task), len(tasks))
    name = f"{job.get('namespace') or 'default'}/{job['name']}"
    loaded = LoadedJob(Workload(name, ()), [])
    roles = []
    for part in _parts(job, tasks, minimums, requests):
        living = _load_pods(part, devices, loaded, is_stale(job))
        group = part.group if groups else ""
        roles.append(Role(part.request, part.label, living, min(part.minimum, living), group))
    groups = _with_roles(groups, roles)
    loaded.workload = Workload(
        name,
        tuple(roles),
        job["queue"],
        priority=job["priority"],
        preemptible=job["preemptible"],
        submitted_s=NOW_S - round(60 * job["age_minutes"]),
        held=not loaded.pods and not is_stale(job) and _is_incomplete(tasks, minimums),
        preemption_delay_s=round(job.get("preemption_delay_s") or 0),
        stale_grace_s=None if job.get("staleness_grace_s") is None else round(job["staleness_grace_s"]),
        broken_since_s=_broken_since_s(job, roles, groups, loaded.pods),
        groups=groups,
    )
    if not groups and (own := _constraint(job["subgroups"])) is not None:
        stated = {"required_level": own.required, "preferred_level": own.preferred}
        loaded.workload = replace(loaded.workload, topology=own.topology, placement_strategy=own.strategy, **stated)
    return loaded


def set_of(task: Case) -> str:
    """The pod set of a task."""
    return str(task.get("subgroup") or "default")


def pod_sets(tree: Case) -> Iterator[tuple[str, int]]:
    """The pod sets and how many pods of each must run."""
    for child in tree.get("children", ()):
        if child["kind"] == "podset":
            yield child["name"], child["minAvailable"]
        else:
            yield from pod_sets(child)


def is_stale(job: Case) -> bool:
    """It runs below its minimum, and its failed tasks are missed."""
    return job.get("stale_for_s") is not None


def _is_incomplete(tasks: list[Case], minimums: dict[str, int]) -> bool:
    """Fewer pods of a set are there than must run together: it waits for the others."""
    there = [set_of(task) for task in tasks if task["state"] not in ("Failed", "Gated")]
    return any(there.count(name) < minimum for name, minimum in minimums.items())


def _parts(job: Case, tasks: list[Case], minimums: dict[str, int], requests: Requests) -> Iterator[Part]:
    for name, minimum in minimums.items():
        living = [task for task in tasks if set_of(task) == name and (is_stale(job) or task["state"] not in ASIDE)]
        kinds = list(dict.fromkeys(requests.of(task) for task in living))
        if len(kinds) > 1 and minimum < len(living):
            first = sorted(living, key=lambda task: task["state"] not in PHASES)[:minimum]
            runs = [(kind, list(run)) for kind, run in groupby(living, requests.of)]
        else:
            first, runs = living, [(kind, [task for task in living if requests.of(task) == kind]) for kind in kinds]
        for number, (kind, run) in enumerate(runs):
            needed = minimum if len(runs) == 1 else sum(task in first for task in run)
            yield Part(name if len(runs) == 1 else f"{name}.{number}", name, kind, run, needed)


def _load_pods(part: Part, devices: Devices, loaded: LoadedJob, missed: bool) -> int:
    """Adds the pods that hold places. Returns how many pods the part has."""
    living = 0
    for task in part.tasks:
        if task["state"] in OVER:
            living += missed and task["state"] == "Failed"
            continue
        pod = f"{part.label}-{living}"
        living += 1
        loaded.task_of[pod] = task["id"]
        if task["state"] in PHASES:
            loaded.pods.append(_pod(loaded.workload.name, pod, task, part.request, devices))
    return living


def _pod(workload: str, name: str, task: Case, request: Request, devices: Devices) -> Pod:
    return Pod(
        workload,
        name,
        task["node"],
        PHASES[task["state"]],
        devices.hold(task, request),
        request.cpu_milli,
        request.memory_mib,
        request.extended,
        NOW_S - RAN_S,
        request.neighbours,
    )


def _broken_since_s(job: Case, roles: list[Role], groups: tuple[SubGroup, ...], pods: list[Pod]) -> int:
    """Since when a gang runs below its minimum: as long as the case says, else for a second."""
    running = [pod.name.rpartition("-")[0] for pod in pods if pod.phase is Phase.RUNNING]
    is_short = not has_minimum(groups, roles, [running.count(role.name) for role in roles])
    stale_s = job["stale_for_s"] if is_stale(job) else 1
    return NOW_S - round(stale_s) if running and is_short else 0


def _sub_groups(tree: Case) -> tuple[SubGroup, ...]:
    """The tree above the pod sets, where it says that only some of them must run."""
    every = list(_sets(tree, ""))
    has_levels = any(group.levels is not None for group in every if group.name)
    return tuple(every) if has_levels or any(group.minimum >= 0 for group in every) else ()


def _with_roles(groups: tuple[SubGroup, ...], roles: list[Role]) -> tuple[SubGroup, ...]:
    """A pod set whose pods are all over is no part of the tree any more."""
    inner = {"", *(group.parent for group in groups), *(role.group for role in roles)}
    return tuple(group for group in groups if group.name in inner)


def _sets(tree: Case, parent: str) -> Iterator[SubGroup]:
    minimum = tree.get("minSubGroup")
    yield SubGroup(tree["name"], parent, -1 if minimum is None else minimum, _constraint(tree))
    for child in tree.get("children", ()):
        if child["kind"] == "podset":
            levels = _constraint(child)
            yield SubGroup(child["name"], tree["name"], levels=levels)  # its roles are the kinds of pods in it
        else:
            yield from _sets(child, tree["name"])


def _constraint(tree: Case) -> TopologyConstraint | None:
    """The levels of a set or pod set. Only what is stated counts: no tighter level is looked for."""
    told = tree.get("topology")
    if not told:
        return None
    levels = (told.get("RequiredLevel") or "", told.get("PreferredLevel") or "")
    return TopologyConstraint(told.get("Topology") or "", *levels, STATED)
