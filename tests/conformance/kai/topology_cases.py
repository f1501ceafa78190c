"""Cases about levels in the form of KAI-Scheduler's, of our own making. Each says why its answer is the only one.

`play` reads them as it reads the others. Nodes are written as `rack` or `block/rack`, one letter for each of them.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

Case = dict[str, Any]
BLOCK, RACK, ROW = "example.com/block", "example.com/rack", "example.com/row"
FREE = {"quota": -1, "limit": -1, "weight": 1}


class Job(NamedTuple):
    """Tasks of one GPU each, or of what `tasks` says."""

    name: str
    tasks: int = 1
    on: Sequence[str] = ()  # the nodes of those that run; the others are pending
    required: str = ""
    preferred: str = ""
    gpus: int = 1
    priority: int = 50
    queue: str = "team"
    minimum: int = 0  # 0: all
    parts: Mapping[str, tuple[int, str, str]] = {}  # sub-groups: tasks, required and preferred level
    only: str = ""  # the type of node on which its first task must run


def case(
    why: str, nodes: Mapping[str, str], jobs: Sequence[Job], expected: Mapping[str, Any], *,
    actions: Sequence[str] = ("allocate",), evictions: int = 0, quotas: Mapping[str, int] | None = None, gpus: int = 1,
    together: Sequence[tuple[str, str]] = (), labels: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Case:  # fmt: skip
    """`expected`: by task its status, or status and node. `together`: tasks that share a domain of a level.

    `labels`: of nodes, beside those of their places; empty: taken away.
    """
    queues = quotas or {"team": len(nodes) * gpus}
    return {
        "id": f"own/{why}",
        "name": why,
        "mode": "single_pass",
        "actions": list(actions),
        "nodes": {name: _node(name, place, gpus, labels.get(name, {})) for name, place in nodes.items()},
        "queues": [_queue(name, quota, at) for at, (name, quota) in enumerate(queues.items())] + [_department()],
        "jobs": [_job(job, len(jobs) - at) for at, job in enumerate(jobs)],
        "expected": {"jobs": {}, "tasks": {task: _wish(wish) for task, wish in expected.items()}, "nodes": {}},
        "max_api_calls": {"evictions": evictions},
        "topologies": [_topology("net", BLOCK, RACK), _topology("power", ROW)],
        "tags": ["topology"],
        "together": [(tasks.split(), level) for tasks, level in together],
    }


def _topology(name: str, *labels: str) -> Case:
    return {"ObjectMeta": {"Name": name}, "Spec": {"Levels": [{"NodeLabel": label} for label in labels]}}


def _node(name: str, place: str, gpus: int, other: Mapping[str, str]) -> Case:
    block, _, rack = place.rpartition("/")
    labels = {"kai.scheduler/type": name} | ({RACK: rack} if rack else {}) | ({BLOCK: block or "b"} if rack else {})
    labels = {key: value for key, value in {**labels, **other}.items() if value}
    amounts = {"cpu_millicores": 20_000_000, "memory_bytes": 20_000_000_000, "max_pods": 110}
    return {"gpus": gpus, "gpu_memory_mib": 100, **amounts, "labels": labels}


def _queue(name: str, quota: int, order: int) -> Case:
    gpu = {"quota": quota, "limit": -1, "weight": 1}
    return {"name": name, "parent": "all", "priority": 100, "created_order": order, "gpu": gpu,
            "cpu_millicores": FREE, "memory_mb": FREE}  # fmt: skip


def _department() -> Case:
    return {"name": "all", "parent": None, "priority": 100, "created_order": 0, "department": True, "gpu": FREE,
            "cpu_millicores": FREE, "memory_mb": FREE}  # fmt: skip


def _job(job: Job, age: int) -> Case:
    tasks = []
    names = [(part, number) for part, (count, _, _) in job.parts.items() for number in range(count)]
    for at, (part, _) in enumerate(names or [("", number) for number in range(job.tasks)]):
        is_up = at < len(job.on)
        task = {"id": f"{job.name}-{at}", "state": "Running" if is_up else "Pending",
                "node": job.on[at] if is_up else None, "cpu_millicores": 1000, "memory_bytes": 10**9,
                "gpus": job.gpus}  # fmt: skip
        task |= {"subgroup": part} if part else {}
        task |= {"node_affinity_in": [job.only]} if job.only and not at else {}
        tasks.append(task)
    root = {"kind": "set", "name": "", **_levels(job.required, job.preferred)}
    if job.parts:
        root["children"] = [
            {"kind": "podset", "name": name, "minAvailable": count, **_levels(required, preferred)}
            for name, (count, required, preferred) in job.parts.items()
        ]
    elif job.minimum:
        root["children"] = [{"kind": "podset", "name": "default", "minAvailable": job.minimum}]
    return {"name": job.name, "namespace": "", "queue": job.queue, "priority": job.priority, "preemptible": True,
            "age_minutes": age, "tasks": tasks, "subgroups": root}  # fmt: skip


def _levels(required: str, preferred: str) -> Case:
    if not required and not preferred:
        return {}
    topology = "power" if ROW in (required, preferred) else "net"
    return {"topology": {"Topology": topology, "RequiredLevel": required, "PreferredLevel": preferred}}


def _wish(wish: Any) -> Case:
    status, node = wish if isinstance(wish, tuple) else (wish, "")
    return {"status": status, **({"node": node} if node else {})}


PENDING = dict.fromkeys(("new-0", "new-1"), "Pending")
CASES = (
    case(
        "two racks with one free node each are no rack with two",
        {"a": "r1", "b": "r1", "c": "r2", "d": "r2"},
        [Job("old", 2, on=("a", "c")), Job("new", 2, required=RACK)],
        PENDING,
    ),
    case(
        "a preferred rack keeps nothing waiting",
        {"a": "r1", "b": "r1", "c": "r2", "d": "r2"},
        [Job("old", 2, on=("a", "c")), Job("new", 2, preferred=RACK)],
        {"new-0": "Binding", "new-1": "Binding"},
    ),
    case(
        "of two blocks with room, the one in which a rack has room for all",
        {"a": "b1/r1", "b": "b1/r2", "c": "b2/r3", "d": "b2/r3"},
        [Job("new", 2, required=BLOCK, preferred=RACK)],
        {"new-0": ("Binding", "c"), "new-1": ("Binding", "d")},
    ),
    case(
        "each sub-group has a rack and both have one block, which only the second has",
        {"a": "b1/r1", "b": "b1/r1", "c": "b1/r2", "d": "b2/r3", "e": "b2/r3", "f": "b2/r4", "g": "b2/r4"},
        [Job("new", required=BLOCK, parts={"x": (2, RACK, ""), "y": (2, RACK, "")})],
        dict.fromkeys((f"new-{at}" for at in range(4)), "Binding"),
        together=[("new-0 new-1 new-2 new-3", BLOCK), ("new-0 new-1", RACK), ("new-2 new-3", RACK)],
    ),
    case(
        "sub-groups whose racks are in two blocks wait if one block is required",
        {"a": "b1/r1", "b": "b1/r1", "c": "b2/r2", "d": "b2/r2"},
        [Job("new", required=BLOCK, parts={"x": (2, RACK, ""), "y": (2, RACK, "")})],
        dict.fromkeys((f"new-{at}" for at in range(4)), "Pending"),
    ),
    case(
        "what grows stays in the rack of what runs, although another rack is free",
        {"a": "r1", "b": "r1", "c": "r2", "d": "r2"},
        [Job("old", 1, on=("b",)), Job("new", 2, on=("a",), required=RACK, minimum=1)],
        {"new-0": ("Running", "a"), "new-1": "Pending"},
    ),
    case(
        "what grows finds the last node of its rack",
        {"a": "r1", "b": "r1", "c": "r2", "d": "r2"},
        [Job("new", 2, on=("c",), required=RACK, minimum=1)],
        {"new-0": ("Running", "c"), "new-1": ("Binding", "d")},
    ),
    case(
        "a node in no rack does not help",
        {"a": "r1", "b": "", "c": ""},
        [Job("new", 2, required=RACK)],
        PENDING,
    ),
    case(
        "one task may run on one node only, and its rack has room for one",
        {"a": "r1", "b": "r2", "c": "r2"},
        [Job("new", 2, required=RACK, only="a")],
        PENDING,
    ),
    case(
        "the small gang takes the small rack, and so the large one starts behind it",
        {"a": "r1", "b": "r1", "c": "r1", "d": "r2", "e": "r2"},
        [Job("small", 2, required=RACK), Job("large", 3, required=RACK)],
        {"small-0": "Binding", "small-1": "Binding", **{f"large-{at}": "Binding" for at in range(3)}},
        together=[("small-0 small-1", RACK), ("large-0 large-1 large-2", RACK)],
    ),
    case(
        "victims are taken from one rack, and from the one that needs fewer",
        {"a": "r1", "b": "r1", "c": "r2", "d": "r2"},
        [Job("x", on=("a",)), Job("y", on=("b",)), Job("z", on=("c",)), Job("new", 2, required=RACK, priority=100)],
        {"x-0": "Running", "y-0": "Running", "z-0": "Releasing", "new-0": "Pipelined", "new-1": "Pipelined"},
        actions=("allocate", "preempt"),
        evictions=1,
    ),
    case(
        "nobody is stopped for a gang that no rack can hold",
        {"a": "r1", "b": "r2", "c": "r3"},
        [Job("x", on=("a",)), Job("y", on=("b",)), Job("new", 2, required=RACK, priority=100)],
        {"x-0": "Running", "y-0": "Running", **PENDING},
        actions=("allocate", "preempt"),
    ),
    case(
        "a queue takes back its quota in one rack, and leaves the other alone",
        {"a": "r1", "b": "r1", "c": "r2", "d": "r2"},
        [*(Job(f"greedy-{at}", on=(at,), queue="rich") for at in "abcd"), Job("new", 2, required=RACK, queue="poor")],
        {"new-0": "Pipelined", "new-1": "Pipelined"},
        together=[("new-0 new-1", RACK)],
        actions=("allocate", "reclaim"),
        evictions=2,
        quotas={"rich": 2, "poor": 2},
    ),
    case(
        "where no rack holds all, the roomiest is filled before the next, although others are in use",
        {"a": "b/r1", "b": "b/r2", "c": "b/r3"},
        [Job("x", 3, on="aaa"), Job("y", 2, on="bb"), Job("z", on="c"), Job("new", 4, required=BLOCK, preferred=RACK)],
        {**dict.fromkeys(("new-0", "new-1", "new-2"), ("Binding", "c")), "new-3": ("Binding", "b")},
        gpus=4,
    ),
    case(
        "the block with room for all comes before the cluster, although no rack has room",
        {"a": "b1/r1", "b": "b2/r2", "c": "b2/r3"},
        [Job("new", 3, preferred=RACK)],
        dict.fromkeys(("new-0", "new-1", "new-2"), "Binding"),
    ),
    case(
        "no rack has room for three, but one of the two blocks has",
        {"a": "b1/r1", "b": "b1/r2", "c": "b2/r3", "d": "b2/r4", "e": "b2/r5"},
        [Job("new", 3, preferred=RACK)],
        dict.fromkeys(("new-0", "new-1", "new-2"), "Binding"),
        together=[("new-0 new-1 new-2", BLOCK)],
    ),
    case(
        "racks with the same name in two blocks are two racks",
        {"a": "b1/r1", "b": "b2/r1"},
        [Job("new", 2, required=RACK)],
        PENDING,
    ),
    case(
        "a node with a rack and no block is in no rack of a block",
        {"a": "b1/r1", "b": "b1/r1"},
        [Job("new", 2, required=RACK)],
        PENDING,
        labels={"b": {BLOCK: ""}},
    ),
    case(
        "a level that the topology does not have keeps work waiting",
        {"a": "r1", "b": "r1"},
        [Job("new", 2, required="example.com/room")],
        PENDING,
        labels={"a": {"example.com/room": "m"}, "b": {"example.com/room": "m"}},
    ),
    case(
        "one sub-group has a rack and the other a row of another topology",
        {"a": "r1", "b": "r1", "c": "r2", "d": "r3"},
        [Job("new", parts={"x": (2, RACK, ""), "y": (2, ROW, "")})],
        {"new-0": "Binding", "new-1": "Binding", "new-2": ("Binding", "c"), "new-3": ("Binding", "d")},
        labels={"a": {ROW: "1"}, "b": {ROW: "2"}, "c": {ROW: "3"}, "d": {ROW: "3"}},
        together=[("new-0 new-1", RACK)],
    ),
    case(
        "the first sub-group leaves the only row to the second, which has no other",
        {"a": "r1", "b": "r1", "c": "r2", "d": "r2"},
        [Job("new", parts={"x": (2, RACK, ""), "y": (2, ROW, "")})],
        {"new-0": ("Binding", "c"), "new-1": ("Binding", "d"), "new-2": ("Binding", "a"), "new-3": ("Binding", "b")},
        labels={"a": {ROW: "1"}, "b": {ROW: "1"}},
    ),
    case(
        "a sub-group with a level waits, and so the one without waits, too",
        {"a": "r1", "b": "r2", "c": "r3"},
        [Job("new", parts={"x": (2, RACK, ""), "y": (1, "", "")})],
        dict.fromkeys(("new-0", "new-1", "new-2"), "Pending"),
    ),
    case(
        "a required block holds for sub-groups that prefer a rack each",
        {"a": "b1/r1", "b": "b1/r1", "c": "b2/r2", "d": "b2/r2", "e": "b2/r3", "f": "b2/r4"},
        [Job("new", required=BLOCK, parts={"x": (2, "", RACK), "y": (2, "", RACK)})],
        {"new-0": ("Binding", "c"), "new-1": ("Binding", "d"), "new-2": "Binding", "new-3": "Binding"},
        together=[("new-0 new-1 new-2 new-3", BLOCK)],
    ),
    case(
        "the minimum starts in a rack, and what is beyond it waits for the same rack",
        {"a": "r1", "b": "r1", "c": "r2", "d": "r2"},
        [Job("old", on=("a",)), Job("new", 3, required=RACK, minimum=2)],
        {"new-0": ("Binding", "c"), "new-1": ("Binding", "d"), "new-2": "Pending"},
    ),
    case(
        "the minimum starts in a rack, and what is beyond it starts elsewhere if the rack is only preferred",
        {"a": "r1", "b": "r1", "c": "r2", "d": "r2"},
        [Job("old", on=("a",)), Job("new", 3, preferred=RACK, minimum=2)],
        {"new-0": ("Binding", "c"), "new-1": ("Binding", "d"), "new-2": ("Binding", "b")},
    ),
    case(
        "nobody is stopped where a rack is free",
        {"a": "r1", "b": "r1", "c": "r2", "d": "r2"},
        [Job("x", on=("a",)), Job("y", on=("b",)), Job("new", 2, required=RACK, priority=100)],
        {"x-0": "Running", "y-0": "Running", "new-0": ("Binding", "c"), "new-1": ("Binding", "d")},
        actions=("allocate", "preempt"),
    ),
    case(
        "victims are taken in one block only, for sub-groups with a rack each",
        {"a": "b1/r1", "b": "b1/r2", "c": "b2/r3", "d": "b2/r4"},
        [
            *(Job(f"old-{at}", on=(at,)) for at in "abc"),
            Job("new", required=BLOCK, parts={"x": (1, RACK, ""), "y": (1, RACK, "")}, priority=100),
        ],
        {
            "old-a-0": "Running",
            "old-b-0": "Running",
            "old-c-0": "Releasing",
            "new-0": "Pipelined",
            "new-1": "Pipelined",
        },
        actions=("allocate", "preempt"),
        evictions=1,
    ),
    case(
        "one task moves to the other rack, so that a rack is free",
        {"a": "r1", "b": "r1", "c": "r2", "d": "r2"},
        [Job("x", on=("a",)), Job("y", on=("c",)), Job("new", 2, required=RACK)],
        {"new-0": "Pipelined", "new-1": "Pipelined"},
        actions=("allocate", "consolidation"),
        evictions=1,
        together=[("new-0 new-1", RACK)],
    ),
)
