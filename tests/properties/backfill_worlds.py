"""Worlds of work with known run times on a virtual clock: what happens when, and which starts were planned."""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from kaiwo.model.plan import Plan
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.policy import Policy
from tests.worlds import World


@dataclass(frozen=True)
class Job:
    """Work that arrives, says how long it runs, and runs so long in truth."""

    name: str
    arrives_s: int
    pods: int
    gpus_each: int
    says_s: int  # 0: nothing
    runs_s: int
    priority: int = 0
    preemptible: bool = True


@dataclass
class Story:
    """Play jobs to their end; keeps what was promised, started and stopped."""

    jobs: list[Job]
    nodes: int = 4
    policy: Policy = field(default_factory=lambda: Policy(promises=3, large_permille=300))
    promised: dict[str, list[tuple[int, PlannedStart]]] = field(default_factory=dict)  # when it was told, and what
    started_s: dict[str, int] = field(default_factory=dict)
    planned: set[str] = field(default_factory=set)  # who started by a promise of its own, or by right
    plans: list[Plan] = field(default_factory=list)

    def play(self, look: Callable[[World, Plan], None] = lambda _world, _plan: None) -> World:
        world = World(nodes=self.nodes, gpus_per_node=4, policy=self.policy)
        world.queue("default", quota_milli=self.nodes * 4_000)
        arrivals, ends = sorted(self.jobs, key=lambda job: (job.arrives_s, job.name)), list[tuple[int, str]]()
        by_name = {f"default/{job.name}": job for job in self.jobs}
        while arrivals or ends or world.state.backlog:
            times = [job.arrives_s for job in arrivals[:1]] + [end_s for end_s, _ in ends[:1]]
            times += [world.state.look_again_s] if world.state.look_again_s else []
            if not times:
                return world
            world.now_s = max(world.now_s, min(times))
            while ends and ends[0][0] <= world.now_s:
                end_s, name = heappop(ends)
                if self.started_s.get(name, -1) + by_name[name].runs_s == end_s and name in world.state.pods:
                    world.finish(name)
            while arrivals and arrivals[0].arrives_s <= world.now_s:
                self._submit(world, arrivals.pop(0))
            self._settle(world, by_name, ends, look)
        return world

    def _settle(
        self, world: World, by_name: dict[str, Job], ends: list[tuple[int, str]], look: Callable[[World, Plan], None]
    ) -> None:
        for _ in range(40):
            plan = world.decide()
            self.plans.append(plan)
            self.planned |= set(plan.unpromised) | {kept.workload for kept in plan.nominations}
            for promise in plan.promises:
                self.promised.setdefault(promise.workload, []).append((world.now_s, promise))
            for name in dict.fromkeys(start.workload for start in plan.starts):
                self.started_s[name] = world.now_s
                heappush(ends, (world.now_s + by_name[name].runs_s, name))
            look(world, plan)
            world.let_go()
            if plan.is_empty and not plan.unfinished:
                return
        raise AssertionError(f"it never settles at {world.now_s}")

    def _submit(self, world: World, job: Job) -> None:
        world.submit(
            job.name, job.pods, job.gpus_each, estimate_s=job.says_s, priority=job.priority,
            preemptible=job.preemptible, time_limit_s=0 if job.preemptible else max(job.says_s, job.runs_s),
        )  # fmt: skip
