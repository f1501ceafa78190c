"""On the real API server: every point of plugins is asked by a scheduler on Kubernetes, confined and trusted."""

from pathlib import Path

import pytest

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import RunningScheduler, scheduling
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import QUEUES
from kaiwo.plugins.registry import ALL_POINTS
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.installed_webhooks import queue
from tests.clusters.kubernetes.kubectl_cluster import Kubectl
from tests.clusters.kubernetes.running_scheduler import until_bound
from tests.conftest import ROOT
from tests.controlplane.plane import Plane
from tests.plugins.every_point import POLICY, write_all
from tests.waiting import run, until

# The operator of KaiwoJobs makes the pods on Kubernetes, so nothing is divided there. The end of work is not told:
# Kaiwo keeps no records of ended pods.
ASKED = {point.replace("_", "-") for point in ALL_POINTS} - {"replica-strategy"}


def calls(kaiwo: RunningScheduler) -> dict[str, int]:
    return {each.name: each.calls for each in kaiwo.context.plugins.statuses() if each.name in ASKED}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["confined", "trusted"])
def test_every_point_is_asked_on_kubernetes(how: str, plane: Plane, tmp_path: Path) -> None:
    file, policy = write_all(tmp_path, how), tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "deploy" / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwoqueues.kaiwo.ai")
    plane.kubectl("delete", "kaiwoqueue", "lab", "--ignore-not-found")

    async def test() -> None:
        async with client_for(plane.kubeconfig) as client:
            kubectl = Kubectl(client)
            await kubectl.clean()
            for name in ("node-1", "node-2"):
                await kubectl.node(name, gpus=2)
            options = SchedulerOptions(
                str(tmp_path / "home"), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=False,
                plugins=str(file), policy=str(policy),
            )  # fmt: skip
            async with scheduling(options) as kaiwo:
                await kubectl.pod("low", gpus=2, annotations={"kaiwo.ai/priority": "1"})
                bound = await until_bound(kubectl, "low")
                assert bound["metadata"]["annotations"]["example.com/plan"] == "1"  # of the plugin with `bind`
                await until(lambda: calls(kaiwo)["topology-source"] > 0, "the topology of the plugin")
                on_rack = {
                    "kaiwo.ai/required-level": "rack",
                    "kaiwo.ai/placement-strategy": "plugin:placement-strategy",
                }
                await kubectl.pod("racked", gpus=2, annotations=on_rack)
                await until_bound(kubectl, "racked")
                await kubectl.create(QUEUES, queue("lab"))
                await kubectl.pod("high", gpus=2, annotations={"kaiwo.ai/priority": "99"})
                await kubectl.pod("waits", gpus=2, annotations={"kaiwo.ai/queue": "lab"})
                await until(lambda: calls(kaiwo)["victim-filter"] > 0, "somebody to make room")
                plugins = kaiwo.context.plugins
                await until(lambda: all(n for name, n in calls(kaiwo).items() if name != "notification"), "the others")
                assert [each for each in plugins.statuses() if each.name in ASKED and each.faults] == []
                await kaiwo.loop.ask(lambda _: plugins.set_aside([("sink", "it is the last of the test")]))
                await until(lambda: calls(kaiwo)["notification"] > 0, "the notice that a plugin was set aside")
                assert plugins.status("notification").state == "active"
            await kubectl.delete(f"{QUEUES}/lab")
            await kubectl.clean()

    run(test())
