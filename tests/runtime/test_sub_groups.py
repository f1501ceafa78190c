"""Sub-groups from the text that people write to pods on a cluster."""

from pathlib import Path

from kaiwo.clusters.simulated import SimulatedCluster
from kaiwo.manifests import parse_all
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from tests.runtime.test_scheduling_loop import job, run, until

TEXT = """
name: serve
gpus: 1
minSubGroups: 1
simulate: 10m
subGroups:
- {name: r0, pods: 2}
- {name: r1, pods: 2}
- {name: r2, pods: 2}
"""


def test_replicas_start_whole_and_join_whole(tmp_path: Path) -> None:
    """Four GPUs, of which one is in use: one replica fits, and a second when the other work is over."""

    async def story(loop: SchedulingLoop, simulated: SimulatedCluster) -> None:
        def up() -> list[str]:
            return sorted(loop.state.pods.get("default/serve", {}))

        await simulated.work.submit([job("other", 1)])
        await until(loop, lambda: "default/other" in loop.state.pods)
        await simulated.work.submit(parse_all(TEXT).submissions)
        await until(loop, up)
        assert up() == ["r0-0", "r0-1"]
        simulated.advance(60)
        await until(loop, lambda: len(up()) > 2)
        assert up() == ["r0-0", "r0-1", "r1-0", "r1-1"]
        await simulated.abilities.work.change("cancel", "default/serve")
        await until(loop, lambda: not up())

    run(tmp_path, story)
