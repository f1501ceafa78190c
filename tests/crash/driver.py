"""A small Kaiwo to be killed: `python -m tests.crash.driver HOME SEED ROUND SUBMITTED [finish]`.

It submits jobs until SUBMITTED of them are in, writes a line for each that was accepted, schedules by first fit, and
now and then evicts, cancels, requeues or drains. With `finish` it ends when everything is over.
"""

import asyncio
import contextlib
import random
import sys
from pathlib import Path

from kaiwo.clusters.local import LocalCluster
from kaiwo.model.errors import KaiwoError, NotFoundError
from kaiwo.model.plan import Cause, Eviction, Plan
from kaiwo.model.workload import Phase
from tests.clusters.kinds import some_nodes
from tests.clusters.picture import Picture
from tests.crash.first_fit import first_fit
from tests.crash.jobs import kind_of, make_jobs

SPEED = 200.0
JOBS = 2000


class Driver:
    """One life of the process."""

    def __init__(self, home: Path, seed: int, round_: int, submitted: int, does_finish: bool) -> None:
        self.home = home
        self.cluster = LocalCluster(home, some_nodes(3, gpus=4), speed=SPEED, grace_s=1.0)
        self.jobs = make_jobs(JOBS, seed, home / "effects")
        self.chance = random.Random(seed * 1000 + round_)
        self.submitted = submitted
        self.does_finish = does_finish
        self.picture = Picture()
        self.touched = asyncio.Event()

    async def run(self) -> None:
        """Until it is killed, or done."""
        self.report_adopted()
        tasks = [asyncio.create_task(work) for work in (self.read(), self.submit(), self.schedule(), self.disturb())]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    def report_adopted(self) -> None:
        running = [at for at in self.cluster.world.pods.values() if at.run.is_process and at.pod.phase is Phase.RUNNING]
        print(f"up {len(running)}", flush=True)

    async def read(self) -> None:
        async for batch in self.cluster.events():
            self.picture.patch(batch)
            self.touched.set()

    async def submit(self) -> None:
        last = ""
        with (self.home / "accepted").open("a") as accepted:
            for workload, program in self.jobs[: self.submitted]:
                if kind_of(workload.name) == "after" and last:
                    workload = type(workload)(workload.name, workload.roles, after=(last,))
                if kind_of(workload.name) in ("single", "share", "simulated"):
                    last = workload.name
                try:
                    self.cluster.record(workload.name)
                except NotFoundError:
                    await self.cluster.submit([(workload, program)], who="driver")
                    await asyncio.sleep(self.chance.random() * 0.02)
                print(workload.name, file=accepted, flush=True)

    async def schedule(self) -> None:
        while not (self.does_finish and self.is_over()):
            self.touched.clear()
            plan = first_fit(self.picture, self.cluster.now_s())
            if plan.starts:
                await self.cluster.apply(plan)
            with contextlib.suppress(TimeoutError):  # back-offs end without an event
                await asyncio.wait_for(self.touched.wait(), 0.02)
        await self.cluster.close()
        sys.exit(0)

    def is_over(self) -> bool:
        records = self.cluster.records()
        return len(records) >= self.submitted and all(record.state.is_over for record in records)

    async def disturb(self) -> None:
        """What people and preemption do, at random; endless jobs are cancelled when they have begun to run."""
        while True:
            await asyncio.sleep(self.chance.random() * 0.1)
            pods = [pod for pod in self.picture.pods.values() if pod.phase is Phase.RUNNING]
            endless = [pod for pod in pods if kind_of(pod.workload) == "endless"]
            try:
                if endless and (self.does_finish or self.chance.random() < 0.2):
                    await self.cluster.cancel(endless[0].workload)
                elif pods and not self.does_finish:
                    await self.disturb_one(self.chance.choice(pods).workload, self.chance.choice(("node-1", "node-2")))
            except KaiwoError:
                continue  # it ended meanwhile
            finally:
                await self.cluster.cordon("node-2", False)
                await self.cluster.cordon("node-1", False)

    async def disturb_one(self, name: str, node: str) -> None:
        choice = self.chance.randrange(8)
        if choice > 2:
            return
        here = {pod.workload for pod in self.picture.pods.values() if pod.node == node}
        with (self.home / "disturbed").open("a") as disturbed:
            print(name, *here, file=disturbed)
        match choice:
            case 0:
                pods = [pod for pod in self.picture.pods.values() if pod.workload == name]
                evictions = tuple(Eviction(name, pod.name, Cause.PREEMPT, "default/other") for pod in pods)
                await self.cluster.apply(Plan(evictions=evictions))
            case 1:
                await self.cluster.requeue(name)
            case 2:
                await self.cluster.drain(node)


if __name__ == "__main__":
    driver = Driver(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), "finish" in sys.argv)
    asyncio.run(driver.run())
