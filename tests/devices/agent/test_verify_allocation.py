"""The kubelet starts pods in another order than they were bound: what the agent does about it."""

import threading
from pathlib import Path

import grpc
import pytest

from kaiwo.devices.agent.kubelet.bound_pods import decode_granted
from kaiwo.devices.agent_messages import Correction
from kaiwo.model.gpus.gpu import Share
from tests.devices.agent.conftest import AMD, Start
from tests.devices.agent.fake_kubelet import ApiServer, Kubelet
from tests.devices.agent.test_device_plugin import IDS, SHARE_RESOURCE, ready, share, whole


@pytest.fixture
def told(kubelet: Kubelet, start_agent: Start) -> list[Correction]:
    agent = start_agent()
    ready(kubelet)
    found: list[Correction] = []
    assert agent.kubelet is not None
    agent.kubelet.allocator.report = found.append
    return found


def test_equal_pods_that_were_mixed_up_keep_what_they_started_on(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    api.bind("a", whole(0), AMD)
    api.bind("b", whole(1), AMD)
    names_b, answer_b = kubelet.admit("team", "b", "main", AMD, 1)  # the kubelet is at b; the agent takes it for a
    names_a, answer_a = kubelet.admit("team", "a", "main", AMD, 1)
    kubelet.start_container(AMD, names_b)
    kubelet.start_container(AMD, names_a)
    assert {device.host_path for device in answer_b.devices} >= {"/dev/dri/renderD128"}
    assert {device.host_path for device in answer_a.devices} >= {"/dev/dri/renderD136"}
    assert {(line.pod, line.devices) for line in told} == {("b", whole(0)), ("a", whole(1))}


def test_also_when_the_other_has_not_been_admitted_yet(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    api.bind("a", whole(0), AMD)
    api.bind("b", whole(1), AMD)
    names_b, _ = kubelet.admit("team", "b", "main", AMD, 1)
    kubelet.start_container(AMD, names_b)
    names_a, answer_a = kubelet.admit("team", "a", "main", AMD, 1)
    assert names_a == [IDS[1]]
    assert {device.host_path for device in answer_a.devices} >= {"/dev/dri/renderD136"}
    kubelet.start_container(AMD, names_a)
    assert {(line.pod, line.devices) for line in told} == {("b", whole(0)), ("a", whole(1))}
    kubelet.start_container(AMD, names_b)  # a container that starts again
    assert len(told) == 2


def test_pods_of_different_size_are_never_mixed_up(kubelet: Kubelet, api: ApiServer, told: list[Correction]) -> None:
    api.bind("small", share(0, 200), SHARE_RESOURCE)
    api.bind("large", share(1, 800), SHARE_RESOURCE)
    names, _ = kubelet.admit("team", "large", "main", SHARE_RESOURCE, 1)
    with pytest.raises(grpc.RpcError, match=r"large was about to start on the devices of team/small"):
        kubelet.start_container(SHARE_RESOURCE, names)
    assert told == []


def test_without_doubt_a_silent_kubelet_is_no_hindrance(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    kubelet.is_mute = True
    api.bind("only", whole(2), AMD)
    names, _ = kubelet.admit("team", "only", "main", AMD, 1)
    kubelet.start_container(AMD, names)
    api.bind("a", whole(0), AMD)
    api.bind("b", whole(1), AMD)
    names, _ = kubelet.admit("team", "b", "main", AMD, 1)
    with pytest.raises(grpc.RpcError, match="did not list its pod resources"):
        kubelet.start_container(AMD, names)
    kubelet.is_mute = False
    kubelet.start_container(AMD, names)
    assert [line.pod for line in told] == ["b", "a"]


def test_names_that_nobody_handed_out_do_not_start(kubelet: Kubelet, told: list[Correction]) -> None:
    with pytest.raises(grpc.RpcError, match="an unknown pod"):
        kubelet.start_container(AMD, [IDS[0]])


def test_many_at_once_in_any_order_end_on_devices_of_their_own(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    for number in range(4):
        api.bind(f"pod-{number}", whole(number), AMD)
    order = [2, 0, 3, 1]
    admitted = [kubelet.admit("team", f"pod-{number}", "main", AMD, 1) for number in order]
    threads = [threading.Thread(target=kubelet.start_container, args=(AMD, names)) for names, _ in admitted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    given = {
        f"pod-{number}": next(device.host_path for device in answer.devices if "render" in device.host_path)
        for number, (_, answer) in zip(order, admitted, strict=True)
    }
    assert len(set(given.values())) == 4
    last = {
        name: decode_granted(pod["metadata"]["annotations"]["kaiwo.ai/granted-devices"])
        for name, pod in api.pods.items()
    }
    last |= {line.pod: line.devices for line in told}
    renders = {IDS[number]: f"/dev/dri/renderD{128 + 8 * number}" for number in range(4)}
    assert {name: renders[devices[0].gpu] for name, devices in last.items()} == given


def test_a_spoilt_book_begins_anew(folder: Path, kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    (folder / "state").mkdir()
    (folder / "state" / "allocations.json").write_text("{half")
    said: list[str] = []
    start_agent(said)
    ready(kubelet)
    api.bind("train", (Share(IDS[0], 1000, 1),), AMD)
    kubelet.admit("team", "train", "main", AMD, 1)
    assert any("starts empty" in line for line in said)
