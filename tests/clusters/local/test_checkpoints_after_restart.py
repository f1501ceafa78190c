"""The times of checkpoints survive a restart of Kaiwo."""

from pathlib import Path

from kaiwo.clusters.local import LocalCluster
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.plan import Plan
from kaiwo.model.workload_record import Program
from tests.clusters.kinds import full, some_nodes, start_of, work
from tests.waiting import run


def opened(home: Path) -> LocalCluster:
    return LocalCluster(home, some_nodes(1), speed=1000.0, grace_s=1.0)


def test_a_new_process_knows_it(tmp_path: Path) -> None:
    async def first() -> int:
        cluster = opened(tmp_path)
        await cluster.work.submit([(work("train", restart_s=300, preemption_delay_s=60), Program(simulated_s=10**6))])
        await cluster.apply(Plan(starts=(start_of("train"),)))
        saved_s = await cluster.work.checkpoint(full("train"), who="ada")
        await cluster.close()
        return saved_s

    async def second(saved_s: int) -> None:
        cluster = opened(tmp_path)
        async for batch in cluster.events():
            (told,) = [event.workload for event in batch if isinstance(event, WorkloadChanged)]
            assert (told.checkpoint_s, told.restart_s, told.preemption_delay_s) == (saved_s, 300, 60)
            break
        await cluster.close()

    run(second(run(first())))
