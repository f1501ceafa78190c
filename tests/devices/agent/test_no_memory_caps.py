"""On Kubernetes nobody puts a container into a group with a cap on GPU memory, so none is promised there."""

from pathlib import Path

import grpc
import pytest

from kaiwo.cli.verbs.operate.agent import _devices_of
from kaiwo.devices.agent.kubelet.bound_pods import SHARE_RESOURCE
from kaiwo.devices.sharing import dmem_cgroup
from kaiwo.gpus.isolation_grades import grade_of
from kaiwo.model.request import Request
from kaiwo.runtime.nodes.local_node import devices_of
from tests.devices.agent.conftest import Start
from tests.devices.agent.fake_kubelet import ApiServer, Kubelet
from tests.devices.agent.test_device_plugin import IDS, ready, share


@pytest.fixture
def groups(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's cgroup tree, of a kernel that can cap the memory of all four GPUs."""
    folder = tmp_path_factory.mktemp("cgroup")
    (folder / "cgroup.subtree_control").touch()
    (folder / "dmem.capacity").write_text("".join(f"drm/{gpu}/vram {196_608 << 20}\n" for gpu in IDS))
    monkeypatch.setattr(dmem_cgroup.regions, "__defaults__", (str(folder),))
    monkeypatch.setattr(dmem_cgroup.make_group, "__defaults__", (str(folder),))
    return folder


def test_a_share_is_graded_by_what_holds(groups: Path, kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    start_agent()
    ready(kubelet)
    api.bind("plain", share(0, 300), SHARE_RESOURCE)
    names, answer = kubelet.admit("team", "plain", "main", SHARE_RESOURCE, 1)
    kubelet.start_container(SHARE_RESOURCE, names)
    assert answer.envs["KAIWO_GPU_ISOLATION"] == "cu-mask"
    assert answer.annotations["kaiwo.ai/gpu-grade"] == "cu-mask"
    assert not (groups / "kaiwo").exists()


def test_who_demands_a_cap_is_told_that_there_is_none(
    groups: Path, kubelet: Kubelet, api: ApiServer, start_agent: Start
) -> None:
    start_agent()
    ready(kubelet)
    api.bind("strict", share(0, 300), SHARE_RESOURCE, **{"kaiwo.ai/gpu-isolation-grade": "memory-capped"})
    with pytest.raises(grpc.RpcError, match="on Kubernetes no share's memory is capped") as refused:
        kubelet.admit("team", "strict", "main", SHARE_RESOURCE, 1)
    assert "dmem" not in refused.value.details()  # type: ignore[attr-defined]


def test_the_scheduler_is_told_the_same(groups: Path, kubelet: Kubelet, start_agent: Start) -> None:
    want = Request(gpus=1, gpu_milli=300, least_grade="memory-capped")
    with_kubelet, alone = start_agent(), start_agent(kubelet_folder="")
    for told in (
        _devices_of(True)(with_kubelet.inventory),
        devices_of(with_kubelet.inventory, with_kubelet.hello().platform),
    ):
        assert {grade_of(want, gpu, {}) for gpu in told} == {"cu-mask"}
    found = devices_of(alone.inventory, alone.hello().platform)  # whose jobs are put into their groups
    assert {grade_of(want, gpu, {}) for gpu in found} == {"memory-capped"}
