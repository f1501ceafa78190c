"""The kubelet's protocol, spoken by a real gRPC client over the agent's sockets."""

from pathlib import Path

import grpc
import pytest

from kaiwo.devices.agent.kubelet.bound_pods import SHARE_RESOURCE
from kaiwo.devices.agent.kubelet.grpc_messages import PLUGIN
from kaiwo.model.gpus.gpu import Share
from tests.devices.agent.conftest import AMD, Start
from tests.devices.agent.fake_kubelet import ApiServer, Kubelet, sockets
from tests.devices.amd_trees import PCI, address
from tests.waiting import wait_until

IDS = [address(number) for number in range(4)]


def whole(*numbers: int) -> tuple[Share, ...]:
    return tuple(Share(IDS[number], 1000, 196_608) for number in numbers)


def share(number: int, milli: int) -> tuple[Share, ...]:
    return (Share(IDS[number], milli, 196_608 * milli // 1000),)


def ready(kubelet: Kubelet) -> None:
    kubelet.wait_for(lambda: len(kubelet.healthy(AMD)) == 4 and len(kubelet.healthy(SHARE_RESOURCE)) == 400)


def test_whole_devices_and_shares_are_offered(kubelet: Kubelet, start_agent: Start) -> None:
    start_agent()
    ready(kubelet)
    assert sorted(kubelet.devices[AMD]) == IDS
    assert f"{IDS[0]}::99" in kubelet.devices[SHARE_RESOURCE]
    answer = kubelet.call(AMD, "GetDevicePluginOptions", PLUGIN["Empty"](), "DevicePluginOptions")
    assert (answer.pre_start_required, answer.get_preferred_allocation_available) == (True, True)
    assert sorted(kubelet.registrations) == [AMD, SHARE_RESOURCE]  # once each


def test_a_pod_gets_exactly_what_the_scheduler_wrote(kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    start_agent()
    ready(kubelet)
    api.bind("train", whole(3, 1), AMD)
    names, answer = kubelet.admit("team", "train", "main", AMD, 2)
    assert sorted(names) == [IDS[1], IDS[3]]  # the kubelet took what the plugin prefers
    paths = {device.host_path for device in answer.devices}
    assert paths == {"/dev/kfd", "/dev/dri/renderD136", "/dev/dri/card9", "/dev/dri/renderD152", "/dev/dri/card25"}
    assert answer.annotations["kaiwo.ai/gpu-grade"] == "partition"
    assert "ROCR_VISIBLE_DEVICES" not in answer.envs  # inside, devices are counted anew
    kubelet.start_container(AMD, names)


def test_even_when_the_kubelet_takes_other_names(kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    start_agent()
    ready(kubelet)
    api.bind("train", whole(2), AMD)
    request = PLUGIN["AllocateRequest"](container_requests=[PLUGIN["ContainerAllocateRequest"](devices_ids=[IDS[0]])])
    answer = kubelet.call(AMD, "Allocate", request, "AllocateResponse").container_responses[0]
    assert "/dev/dri/renderD144" in {device.host_path for device in answer.devices}


def test_two_shares_of_one_gpu_have_masks_that_do_not_overlap(
    kubelet: Kubelet, api: ApiServer, start_agent: Start
) -> None:
    start_agent()
    ready(kubelet)
    masks = []
    for name, milli in (("small", 300), ("large", 700)):
        api.bind(name, share(1, milli), SHARE_RESOURCE)
        names, answer = kubelet.admit("team", name, "main", SHARE_RESOURCE, 1)
        assert names[0].startswith(f"{IDS[1]}::")
        kubelet.start_container(SHARE_RESOURCE, names)
        masks.append(answer.envs["HSA_CU_MASK"])
        assert answer.annotations["kaiwo.ai/gpu-grade"] == "cu-mask"
    assert masks == ["0:0-87", "0:88-295"]


def test_containers_of_one_pod_take_its_devices_in_order(kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    start_agent()
    ready(kubelet)
    api.bind("both", whole(0, 2, 3), AMD, containers={"one": 1, "two": 2})
    first, _ = kubelet.admit("team", "both", "one", AMD, 1)
    second, _ = kubelet.admit("team", "both", "two", AMD, 2)
    assert (first, sorted(second)) == ([IDS[0]], [IDS[2], IDS[3]])


def test_a_container_goes_on_with_the_devices_of_an_init_container(
    kubelet: Kubelet, api: ApiServer, start_agent: Start
) -> None:
    start_agent()
    ready(kubelet)
    api.bind("staged", share(1, 500), SHARE_RESOURCE, init={"prepare": 1})
    (early, before), (late, after) = kubelet.admit_pod(api.pods["staged"]).values()
    assert early == late
    assert before.envs["HSA_CU_MASK"] == after.envs["HSA_CU_MASK"] == "0:0-151"
    kubelet.start_container(SHARE_RESOURCE, early)
    kubelet.start_container(SHARE_RESOURCE, late)
    api.bind("other", share(1, 500), SHARE_RESOURCE)
    _, other = kubelet.admit("team", "other", "main", SHARE_RESOURCE, 1)
    assert other.envs["HSA_CU_MASK"] == "0:152-303"


def test_an_init_container_may_have_fewer(kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    start_agent()
    ready(kubelet)
    api.bind("staged", whole(1, 3), AMD, init={"prepare": 1})
    (early, _), (late, answer) = kubelet.admit_pod(api.pods["staged"]).values()
    kubelet.start_container(AMD, early)
    kubelet.start_container(AMD, late)
    renders = {device.host_path for device in answer.devices if "render" in device.host_path}
    assert renders == {"/dev/dri/renderD136", "/dev/dri/renderD152"}


def test_a_list_that_lags_behind_is_asked_for_again(kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    start_agent()
    ready(kubelet)
    with pytest.raises(grpc.RpcError):
        kubelet.admit("team", "unknown", "main", AMD, 1)
    assert "resourceVersion=0" in api.asked[-2]
    assert "resourceVersion" not in api.asked[-1]


@pytest.mark.parametrize(
    ("shares", "notes", "words"),
    [
        ((), {}, "has no kaiwo.ai/granted-devices"),
        ((Share("0000:99:00.0", 1000, 1),), {}, "no device 0000:99:00.0"),
        (share(0, 500), {"kaiwo.ai/gpu-isolation": "mps"}, "AMD GPUs have no MPS"),
        (share(0, 500), {"kaiwo.ai/gpu-isolation-grade": "memory-capped"}, "but memory-capped is required"),
    ],
)
def test_a_pod_that_cannot_be_served_fails_with_the_reason(
    kubelet: Kubelet, api: ApiServer, start_agent: Start, shares: tuple[Share, ...], notes: dict[str, str], words: str
) -> None:
    start_agent()
    ready(kubelet)
    api.bind("train", shares, AMD, **{"containers": {"main": 1}, **notes})
    with pytest.raises(grpc.RpcError) as refused:
        kubelet.admit("team", "train", "main", AMD, 1)
    assert words in refused.value.details()


def test_a_pod_of_another_scheduler_is_told_so(kubelet: Kubelet, start_agent: Start) -> None:
    start_agent()
    ready(kubelet)
    with pytest.raises(grpc.RpcError, match="schedulerName: kaiwo-scheduler"):
        kubelet.admit("team", "stray", "main", AMD, 1)


def test_a_gpu_that_fails_is_taken_from_the_kubelet_at_once(kubelet: Kubelet, tree: Path, start_agent: Start) -> None:
    start_agent()
    ready(kubelet)
    (tree / PCI / IDS[2] / "ras" / "umc_err_count").write_text("ue: 1\nce: 0\n")
    kubelet.wait_for(lambda: kubelet.healthy(AMD) == [IDS[0], IDS[1], IDS[3]])
    kubelet.wait_for(lambda: len(kubelet.healthy(SHARE_RESOURCE)) == 300)


def test_no_container_starts_on_a_gpu_that_failed_after_its_pod_was_bound(
    kubelet: Kubelet, api: ApiServer, tree: Path, start_agent: Start
) -> None:
    """The kubelet leaves out the name of an ill device; but a name stands for no device."""
    start_agent()
    ready(kubelet)
    api.bind("a", (Share(IDS[0], 1000, 196_608),), AMD)
    errors = tree / PCI / IDS[0] / "ras" / "umc_err_count"
    errors.write_text("ue: 7\nce: 0\n")
    kubelet.wait_for(lambda: kubelet.healthy(AMD) == IDS[1:])
    with pytest.raises(grpc.RpcError, match=f"pod team/a: {IDS[0]} is no longer healthy"):
        kubelet.admit("team", "a", "main", AMD, 1)


def test_where_two_pods_may_be_meant_the_one_on_the_failed_gpu_is_held_back_alone(
    kubelet: Kubelet, api: ApiServer, tree: Path, start_agent: Start
) -> None:
    start_agent()
    ready(kubelet)
    api.bind("a", (Share(IDS[0], 1000, 196_608),), AMD)
    api.bind("b", (Share(IDS[1], 1000, 196_608),), AMD)
    errors = tree / PCI / IDS[0] / "ras" / "umc_err_count"
    before = errors.read_text()
    errors.write_text("ue: 7\nce: 0\n")
    kubelet.wait_for(lambda: kubelet.healthy(AMD) == IDS[1:])
    ill, _ = kubelet.admit("team", "a", "main", AMD, 1)
    well, _ = kubelet.admit("team", "b", "main", AMD, 1)
    kubelet.start_container(AMD, well)
    for _ in range(2):  # the kubelet tries again and again
        with pytest.raises(grpc.RpcError, match=f"pod team/a: {IDS[0]} is no longer healthy"):
            kubelet.start_container(AMD, ill)
    errors.write_text(before)
    kubelet.wait_for(lambda: kubelet.healthy(AMD) == IDS)
    kubelet.start_container(AMD, ill)
    errors.write_text("ue: 7\nce: 0\n")
    kubelet.wait_for(lambda: kubelet.healthy(AMD) == IDS[1:])
    kubelet.start_container(AMD, ill)  # what ran there starts again: where it goes on is for its owner to say


def test_a_pod_that_is_gone_leaves_its_units_to_the_next(kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    agent = start_agent()
    ready(kubelet)
    api.bind("first", share(0, 700), SHARE_RESOURCE)
    kubelet.admit("team", "first", "main", SHARE_RESOURCE, 1)
    api.pods.clear()
    kubelet.held.clear()
    side = agent.kubelet
    assert side is not None
    wait_until(lambda: not side.sharing.grants)
    api.bind("second", share(0, 700), SHARE_RESOURCE)
    _, answer = kubelet.admit("team", "second", "main", SHARE_RESOURCE, 1)
    assert answer.envs["HSA_CU_MASK"] == "0:0-207"


def test_the_kubelet_is_restarted(folder: Path, kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    said: list[str] = []
    start_agent(said)
    ready(kubelet)
    api.bind("train", whole(1), AMD)
    names, _ = kubelet.admit("team", "train", "main", AMD, 1)
    kubelet.stop()
    again = Kubelet(folder)  # removes every socket, as the real one does
    try:
        ready(again)
        again.held = list(kubelet.held)
        again.start_container(AMD, names)  # what the former one handed out is still known
        api.bind("next", whole(2), AMD)
        assert again.admit("team", "next", "main", AMD, 1)[0] == [IDS[2]]
    finally:
        again.stop()
    wait_until(lambda: sum("registered" in line for line in said) == 2)


def test_the_agent_is_restarted(folder: Path, kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    first = start_agent()
    ready(kubelet)
    api.bind("train", share(1, 500), SHARE_RESOURCE)
    names, answer = kubelet.admit("team", "train", "main", SHARE_RESOURCE, 1)
    first.wait()  # type: ignore[attr-defined]
    kubelet.wait_for(lambda: not kubelet.healthy(AMD))
    assert sockets(folder / "device-plugins") == {"kubelet.sock"}
    start_agent()
    ready(kubelet)
    kubelet.start_container(SHARE_RESOURCE, names)
    api.bind("next", share(1, 500), SHARE_RESOURCE)
    _, other = kubelet.admit("team", "next", "main", SHARE_RESOURCE, 1)
    assert (answer.envs["HSA_CU_MASK"], other.envs["HSA_CU_MASK"]) == ("0:0-151", "0:152-303")


def test_an_agent_that_comes_first_waits_for_the_kubelet(folder: Path, start_agent: Start) -> None:
    (folder / "device-plugins").mkdir()
    start_agent()
    late = Kubelet(folder)
    try:
        ready(late)
    finally:
        late.stop()
