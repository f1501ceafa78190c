"""Play a scenario: one pass of some actions, or whole cycles until the state settles.

In:    a case.   Out: what differs from what it expects, empty when it passes.
`expected` and `max_api_calls` are read only to compare, never to decide. What counts is the status of every task, its
node where one is given, and the number of evictions; what the case says of idle GPUs, groups and messages does not.
"""

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.events import Event, NominationGone, PodChanged, PodGone
from kaiwo.model.plan import Plan
from kaiwo.model.policy import Policy
from kaiwo.model.workload import RELEASING_PHASES, Phase, Pod
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.cluster_state import ClusterState
from tests.conformance.kai.jobs import NOW_S, RAN_S
from tests.conformance.kai.loader import Loaded, Where, load

Case = dict[str, Any]
ACTIONS = {
    "allocate": "allocate",
    "consolidation": "consolidate",
    "reclaim": "reclaim",
    "preempt": "preempt",
    "stalegangeviction": "stale-gangs",
}
MODES = ("single_pass", "rounds")
GPU_FIELDS = ("gpus", "gpu_fraction", "gpu_memory_mib", "mig", "claims")


class NotPlayedError(Exception):
    """The case cannot be played yet."""


def play(case: Case) -> list[str]:
    """Load the case into our words, decide, and compare."""
    unknown = [f"the mode {case['mode']}"] if case["mode"] not in MODES else []
    unknown += [f"the action {action}" for action in case["actions"] if action not in ACTIONS]
    if unknown:
        raise NotPlayedError("nobody here knows " + " and ".join(unknown))
    loaded = load(case)
    if loaded.missing:
        raise NotPlayedError("the model has no words for: " + "; ".join(loaded.missing))
    found = _play_rounds(case, loaded) if case["mode"] == "rounds" else _play_pass(case, loaded)
    return [*found, "not read: " + ", ".join(loaded.unread)] if found and loaded.unread else found


@dataclass
class Table:
    """The cluster of one case."""

    case: Case
    loaded: Loaded
    state: ClusterState = field(init=False)
    policy: Policy = field(init=False)
    evictions: int = 0
    slept_s: float = 0

    def __post_init__(self) -> None:
        actions = tuple(ACTIONS[action] for action in self.case["actions"])
        overrides = self.case.get("session_overrides") or {}
        grace_ns = overrides.get(
            "OverrideGlobalDefaultStalenessGracePeriod", 0 if self.case["mode"] == "rounds" else None
        )
        grace_s = 60 if grace_ns is None else grace_ns // 10**9
        self.policy = Policy(
            actions=actions, victim_order="youngest", stale_gang_grace_s=grace_s, **_placing(self.case)
        )
        self.state = ClusterState(BUILTIN.ordering(self.policy))
        self.state.patch(self.loaded.events)
        self._sleep_s = self.case.get("sleep_between_rounds_s") or 0
        self._never_ends = {job["name"] for job in self.case["jobs"] if job.get("stays_terminating_when_evicted")}

    def round(self) -> dict[str, Where]:
        """One cycle: where every task is when its plan is begun."""
        now_s = NOW_S + int(self.slept_s)
        plan = decide(self.state.snapshot(now_s), self.policy)
        self.evictions += len({(each.workload, each.pod) for each in plan.evictions})
        seen = self.seen(plan)
        assumed = assume(self.state, plan, now_s)
        self.state.record_cycle(plan)
        self.state.patch(assumed)
        return seen

    def settle(self) -> None:
        """What was bound runs; what was stopped or promised waits again."""
        self.slept_s += self._sleep_s
        events: list[Event] = []
        for workload, pods in self.state.pods.items():
            for pod in pods.values():
                if pod.phase is Phase.ASSUMED:
                    events.append(PodChanged(_running(pod)))
                elif pod.phase is Phase.RELEASING and self.loaded.job_of[workload] not in self._never_ends:
                    events.append(PodGone(workload, pod.name))
        events += [NominationGone(workload, pod) for workload, kept in self.state.nominations.items() for pod in kept]
        self.state.patch(events)

    def seen(self, plan: Plan) -> dict[str, Where]:
        """Status and node of every task."""
        found: dict[tuple[str, str], Where] = dict.fromkeys(self.loaded.task_of, ("Pending", ""))
        for workload, pods in self.state.pods.items():
            for pod in pods.values():
                found[workload, pod.name] = (self._status(workload, pod), pod.node)
        found |= {(each.workload, each.pod): ("Binding", each.node) for each in plan.starts}
        for each in plan.evictions:
            found[each.workload, each.pod] = ("Releasing", found[each.workload, each.pod][1])
        found |= {(each.workload, each.pod): ("Pipelined", each.node) for each in plan.nominations}
        aside = {task: self.loaded.told[task] for task in self.loaded.aside}
        return aside | {self.loaded.task_of[key]: where for key, where in found.items() if key in self.loaded.task_of}

    def _status(self, workload: str, pod: Pod) -> str:
        if pod.phase in RELEASING_PHASES:
            return "Releasing"
        return "Running" if pod.phase is Phase.RUNNING else self.loaded.told[self.loaded.task_of[workload, pod.name]][0]


def _placing(case: Case) -> dict[str, str]:
    """Another scheduler's configuration in our words."""
    plugins = [plugin for tier in (case.get("scheduler_conf") or {}).get("Tiers", ()) for plugin in tier["Plugins"]]
    tasks = [task for job in case["jobs"] for task in job["tasks"] if task["state"] == "Pending"]
    what = "gpu" if any(any(task.get(name) for name in GPU_FIELDS) for task in tasks) else "cpu"
    found = {}
    for plugin in plugins:
        if plugin["Name"] == "nodeplacement" and (plugin.get("Arguments") or {}).get(what) == "spread":
            found["placement"] = "spread"
        if plugin["Name"] == "gpuspread":
            found["gpu_strategy"] = "worst-fit"
    return found


def _play_pass(case: Case, loaded: Loaded) -> list[str]:
    table = Table(case, loaded)
    return [*_compare(case, table.round()), *_too_many(case, table)]


def _play_rounds(case: Case, loaded: Loaded) -> list[str]:
    table = Table(case, loaded)
    differences = [""]
    for _ in range(case["rounds_until_match"]):
        differences = _compare(case, table.round())
        table.settle()
        after = _compare(case, table.seen(Plan()))
        differences = min(differences, after, key=len)
        if not differences:
            break
    if differences:
        return differences
    for number in range(case["rounds_after_match"]):
        during = _compare(case, table.round())
        table.settle()
        after = _compare(case, table.seen(Plan()))
        if during and after:
            return [f"{number + 1} rounds later: {difference}" for difference in after]
    return _too_many(case, table)


def _compare(case: Case, seen: dict[str, Where]) -> list[str]:
    expected = case["expected"]
    tasks = {job["name"]: [task["id"] for task in job["tasks"]] for job in case["jobs"]}
    found = []
    for name, wish in (expected.get("jobs") or {}).items():
        for task in tasks.get(name, ()):
            found += _differs(task, wish, seen)
    for task, wish in (expected.get("tasks") or {}).items():
        found += _differs(task, wish, seen)
    return found


def _differs(task: str, wish: Case, seen: dict[str, Where]) -> list[str]:
    if task not in seen:
        return []
    status, node = seen[task]
    wanted = {"StuckInReleasing": "Releasing"}.get(wish["status"], wish["status"])
    where = f"{status} on {node}" if node else status
    if status != wanted or (wish.get("node") and status != "Pending" and node != wish["node"]):
        return [f"{task} is {where}, expected {wanted}{' on ' + wish['node'] if wish.get('node') else ''}"]
    return []


def _too_many(case: Case, table: Table) -> list[str]:
    most = (case.get("max_api_calls") or {}).get("evictions")
    if most is not None and table.evictions > most:
        return [f"{table.evictions} evictions, at most {most} are due"]
    return []


def _running(pod: Pod) -> Pod:
    return replace(pod, phase=Phase.RUNNING, since_s=NOW_S - RAN_S)  # as all that runs in a case
