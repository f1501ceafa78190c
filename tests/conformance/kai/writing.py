"""Write a case in a few words, in the form that the runner reads.

In:    nodes, queues and jobs as the tests speak of them.   Out: a case as data.
A task is its state with where it is and what it asks for: `task("Running", "a", gpus=2)`.
"""

from typing import Any

Case = dict[str, Any]
ENDLESS = {"quota": -1, "limit": -1, "weight": 1}


def node(gpus: int = 0, **fields: Any) -> Case:
    """Room for everything but GPUs."""
    plain = {"gpus": gpus, "gpu_memory_mib": 100, "cpu_millicores": 64_000, "memory_bytes": 512 * 10**9}
    return plain | {"max_pods": 110, "labels": {}} | fields


def queue(name: str, quota: float = 0, weight: float = 1, parent: str | None = None, **fields: Any) -> Case:
    """Bounded in GPUs alone."""
    plain = {"name": name, "parent": parent, "priority": 100, "created_order": 0}
    amounts = {"gpu": {"quota": quota, "limit": -1, "weight": weight}, "cpu_millicores": ENDLESS, "memory_mb": ENDLESS}
    return plain | amounts | fields


def task(state: str, node: str | None = None, **fields: Any) -> Case:
    """Its id comes with its job."""
    return {"state": state, "node": node, "cpu_millicores": 500, "memory_bytes": 10**9} | fields


def job(name: str, queue: str, *tasks: Case, least: int | None = None, **fields: Any) -> Case:
    """All its tasks must run, or `least` of them."""
    named = [{"id": f"{name}-{number}"} | each for number, each in enumerate(tasks)]
    plain = {"name": name, "namespace": "", "queue": queue, "priority": 50, "preemptible": True, "age_minutes": 3}
    return plain | {"tasks": named, "subgroups": tree(default=len(tasks) if least is None else least)} | fields


def tree(needs: int | None = None, **sets: int) -> Case:
    """Pod sets by name with their minimums, of which `needs` must run."""
    leaves = [{"kind": "podset", "name": name, "minAvailable": least} for name, least in sets.items()]
    root: Case = {"kind": "set", "name": "", "children": leaves}
    return root if needs is None else root | {"minSubGroup": needs}


def case(action: str, nodes: dict[str, Case], queues: list[Case], jobs: list[Case], **expected: str) -> Case:
    """`a_0="Running on x"`: underscores stand for the dashes of a task's id. A job's name stands for all its tasks."""
    wishes = {name.replace("_", "-"): _wish(where) for name, where in expected.items()}
    names = {job["name"] for job in jobs}
    return {
        "id": "own", "mode": "single_pass", "actions": [action], "nodes": nodes, "queues": queues, "jobs": jobs,
        "expected": {
            "jobs": {name: wish for name, wish in wishes.items() if name in names},
            "tasks": {name: wish for name, wish in wishes.items() if name not in names},
            "nodes": {},
        },
    }  # fmt: skip


def rounds(given: Case, until: int = 2, after: int = 3, **fields: Any) -> Case:
    """The same case, in whole cycles."""
    every = ["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"]
    return (
        given | {"mode": "rounds", "actions": every, "rounds_until_match": until, "rounds_after_match": after} | fields
    )


def _wish(where: str) -> Case:
    status, _, node = where.partition(" on ")
    return {"status": status, "node": node} if node else {"status": status}
