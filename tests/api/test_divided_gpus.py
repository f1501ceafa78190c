"""A KaiwoJob asks for GPUs in total: all are given, where there is room, and applying it again changes nothing."""

from pathlib import Path
from typing import Any

from kaiwo.model.policy import Policy
from tests.api.world import World, world
from tests.plugins.sites import Site
from tests.waiting import run, until

JOB = """
apiVersion: kaiwo.silogen.ai/v1alpha1
kind: KaiwoJob
metadata: {name: NAME}
spec: {ray: true, gpus: COUNT, image: python, entrypoint: sleep 60}
"""


def job(name: str, gpus: int) -> str:
    return JOB.replace("NAME", name).replace("COUNT", str(gpus))


def sizes(it: World, name: str) -> list[int]:
    workload = it.cluster.record(f"default/{name}").workload
    return sorted((role.request.gpus for role in workload.roles for _ in range(role.count)), reverse=True)


def test_nine_gpus_are_nine_gpus_and_follow_the_room(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=2) as it:
            assert (await it.post("/manifests", job("even", 9))).status_code == 200
            assert sizes(it, "even") == [5, 4]
            await until(lambda: "default/even" in it.loop.state.pods, "it to run")
            answered = await it.post("/manifests", job("rest", 7))
            assert answered.status_code == 200, answered.text
            assert sizes(it, "rest") == [4, 3], "there are three and four left"
            again = (await it.post("/manifests", job("even", 9))).json()
            assert again.get("done") == ["workload default/even unchanged"], again
            other: dict[str, Any] = (await it.post("/manifests", job("even", 10))).json()
            assert "differs in: its pods and their requests" in other["message"]

    run(story())


GREEDY = """
import numpy as np
class Favourite:
    name, version = "{name}", "1.0"
    def replica_strategy(self, view, need):
        return np.ones(1_000_000, np.int64)
"""


def test_a_strategy_that_gives_other_gpus_is_set_aside_and_the_job_gets_its_own(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.plugin("greedy", GREEDY, kinds='["replica_strategy"]')
    plugins = site.allow("greedy", deadlineMs=5_000).load()

    async def story() -> None:
        async with world(tmp_path / "home", nodes=2) as it:
            it.context.edge.plugins, it.loop.plugins = plugins, plugins.registry
            it.loop.policy = Policy(replica_strategy="greedy")
            assert (await it.post("/manifests", job("even", 9))).status_code == 200
            assert sizes(it, "even") == [5, 4]
            status = plugins.status("greedy")
            assert (status.state, status.faults) == ("set-aside", 1)
            assert status.last_fault.startswith("divided 9 GPUs as [1, 1")

    try:
        run(story())
    finally:
        plugins.close()
