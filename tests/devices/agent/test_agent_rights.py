"""A real `kaiwo agent` with the rights that the chart gives it: root without capabilities, with process ids of its own.

What MPS and the node's processes need beyond that is refused with a reason, and never guessed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kaiwo.devices.sampling.sampler import ProcessOwners
from kaiwo.devices.sharing.isolation_method import IsolationChoice, choose_isolation
from kaiwo.devices.sharing.prepare_grants import detect_isolation_support
from kaiwo.devices.sharing.share_types import GpuDevice, GrantRequest, IsolationSupport, Refusal
from kaiwo.model.gpus.gpu import Share
from tests.devices.agent.conftest import AMD
from tests.devices.agent.fake_kubelet import ApiServer, Kubelet
from tests.devices.agent.test_device_plugin import SHARE_RESOURCE, ready, share, whole

CONFINE = (
    *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"),
)


@pytest.fixture
def confined(folder: Path, api: ApiServer, tree: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """As the chart's DaemonSet starts it."""
    if os.geteuid() or not all(map(shutil.which, ("unshare", "setpriv"))):
        pytest.skip("only root can take its own capabilities away and make namespaces")
    if subprocess.run([*CONFINE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no new namespaces")
    command = [*CONFINE, sys.executable, "-m", "kaiwo.cli.main", "agent", "--kubelet", "--kubelet-dir", str(folder)]
    command += ["--api", api.url, "--state", str(folder / "state"), "--root", str(tree), "--node", "node-1"]
    command += ["--no-mps", "--no-processes"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        yield process
        process.kill()


@pytest.mark.slow
def test_an_agent_without_capabilities_gives_pods_their_devices(
    confined: "subprocess.Popen[bytes]", kubelet: Kubelet, api: ApiServer, folder: Path
) -> None:
    ready(kubelet)
    (agent,) = Path(f"/proc/{confined.pid}/task/{confined.pid}/children").read_text().split()
    status = dict(line.split(":\t") for line in Path(f"/proc/{agent}/status").read_text().splitlines() if ":\t" in line)
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["NSpid"].split()[-1]) == ("1", "1")
    api.bind("train", whole(3, 1), AMD)
    names, answer = kubelet.admit("team", "train", "main", AMD, 2)
    assert sorted(names) == sorted(each.gpu for each in whole(1, 3))
    assert "/dev/kfd" in {each.host_path for each in answer.devices}
    api.bind("half", share(0, 500), SHARE_RESOURCE)
    _, answer = kubelet.admit("team", "half", "main", SHARE_RESOURCE, 1)
    assert answer.envs["HSA_CU_MASK"]
    assert any((folder / "state").iterdir())  # it remembers what it gave
    assert confined.poll() is None


def test_without_the_right_to_mps_a_share_is_a_time_slice_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kaiwo.devices.sharing.prepare_grants.find_mps_control", lambda: "/usr/bin/control")
    assert detect_isolation_support(True).mps_control == "/usr/bin/control"
    platform = detect_isolation_support(True, may_use_mps=False)
    assert (platform.mps_control, platform.may_use_mps) == ("", False)
    gpu, half = GpuDevice("gpu-0", "nvidia"), Share("gpu-0", 500, 0)
    found = choose_isolation(GrantRequest("a", (half,)), half, gpu, platform)
    assert isinstance(found, IsolationChoice)
    assert (found.method, found.note) == ("time-slicing", "the agent has no right to start MPS daemons here")
    refused = choose_isolation(GrantRequest("a", (half,), "mps"), half, gpu, platform)
    assert isinstance(refused, Refusal)
    assert "set agent.mps in the chart" in refused.reason
    missing = choose_isolation(GrantRequest("a", (half,), "mps"), half, gpu, IsolationSupport())
    assert isinstance(missing, Refusal)
    assert "install it" in missing.reason


def test_who_does_not_see_the_nodes_processes_takes_no_process_of_its_own_for_one_of_them(tmp_path: Path) -> None:
    """The driver names process 7 of the node. Process 7 of the agent's container is another one."""
    (tmp_path / "proc" / "7").mkdir(parents=True)
    uid = "1b2c3d4e-0000-4000-8000-1234567890ab"
    (tmp_path / "proc" / "7" / "cgroup").write_text(f"0::/kubepods/besteffort/pod{uid}/agent\n")
    assert ProcessOwners(str(tmp_path), sees_processes=True).owner(7) == uid
    assert ProcessOwners(str(tmp_path), sees_processes=False).owner(7) == ""


def test_messages_of_agents_from_before_are_still_read() -> None:
    assert msgspec.json.decode(b'{"mps_control":"/x"}', type=IsolationSupport).may_use_mps
