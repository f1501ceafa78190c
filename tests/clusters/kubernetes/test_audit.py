"""On the real API server: what the scheduler writes is in the audit, with its account and its reason."""

from pathlib import Path

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import scheduling
from kaiwo.history.audit import AuditRecord
from tests.audit_records import audit_of
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.kubectl_cluster import Kubectl
from tests.clusters.kubernetes.running_scheduler import until_bound
from tests.controlplane.plane import Plane
from tests.waiting import run, until


def test_binds_evictions_and_cordons_are_in_the_audit(plane: Plane, tmp_path: Path) -> None:
    async def work() -> None:
        async with client_for(plane.kubeconfig) as client:
            kubectl = Kubectl(client)
            await kubectl.clean()
            await kubectl.node("node-1", gpus=1)
            options = SchedulerOptions(str(tmp_path), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=False)
            async with scheduling(options) as kaiwo:
                await kubectl.pod("low", gpus=1, annotations={"kaiwo.ai/priority": "1"})
                await until_bound(kubectl, "low")
                await kubectl.pod("high", gpus=1, annotations={"kaiwo.ai/priority": "99"})
                await until(lambda: bool(_find(tmp_path, "evict")), "the eviction of low")
                nodes = kaiwo.cluster.abilities.nodes
                await nodes.cordon("node-1", True, "new fan", who="ada")
            await kubectl.clean()

    run(work())
    (bind,) = [each for each in _find(tmp_path, "bind") if each.object.endswith("/low")]
    assert (bind.person, bind.object, bind.outcome) == ("scheduler", "pod/default/low", "done")
    assert bind.credential == "admin"
    assert bind.new["target"]["name"] == "node-1"
    assert "default/low" in bind.reason
    evict = _find(tmp_path, "evict")[0]
    assert evict.object == "pod/default/low"
    assert "preempt for default/high" in evict.reason
    (cordon,) = [each for each in _find(tmp_path, "patch") if each.object == "node/node-1"]
    assert cordon.reason == "cordoned by ada: new fan"


def _find(home: Path, action: str) -> list[AuditRecord]:
    return [each for each in audit_of(home) if each.action == action]
