"""Whatever comes over the plugin's socket: calls are answered, and nothing is given that was not offered or written."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from kaiwo.devices.agent.kubelet.bound_pods import SHARE_RESOURCE
from kaiwo.devices.agent.kubelet.device_plugin import MAX_STREAMS
from kaiwo.devices.agent.kubelet.grpc_messages import PLUGIN
from tests.devices.agent.conftest import AMD, Start
from tests.devices.agent.fake_kubelet import ApiServer, Kubelet
from tests.devices.agent.test_device_plugin import IDS, ready, share, whole
from tests.waiting import wait_until


def allocate(kubelet: Kubelet, resource: str, *requests: list[str]) -> list[Any]:
    ones = [PLUGIN["ContainerAllocateRequest"](devices_ids=names) for names in requests]
    request = PLUGIN["AllocateRequest"](container_requests=ones)
    return list(kubelet.call(resource, "Allocate", request, "AllocateResponse").container_responses)


def refused(kubelet: Kubelet, resource: str, *requests: list[str]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        allocate(kubelet, resource, *requests)
    return error.value.code(), error.value.details()


def renders(answer: Any) -> list[str]:
    return [device.host_path for device in answer.devices if "render" in device.host_path]


@contextmanager
def streams(kubelet: Kubelet, resource: str, count: int) -> Iterator[list[Any]]:
    """Streams of one who is not the kubelet, each over a connection of its own."""
    place = f"unix://{kubelet.plugins / kubelet.registered[resource]}"
    channels = [grpc.insecure_channel(place, options=[("kaiwo.test", number)]) for number in range(count)]
    watches = [
        channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=PLUGIN["Empty"].SerializeToString,
            response_deserializer=PLUGIN["ListAndWatchResponse"].FromString,
        )(PLUGIN["Empty"]())
        for channel in channels
    ]
    try:
        yield watches
    finally:
        for channel in channels:
            channel.close()


def outcomes(watches: list[Any]) -> list[str]:
    """Of each stream: that it told the devices, or why it was refused."""
    found = []
    for watch in watches:
        try:
            found.append(f"{len(next(watch).devices)} devices")
        except grpc.RpcError as error:
            found.append(error.code().name)  # type: ignore[attr-defined]
    return sorted(found)


def test_streams_that_are_held_open_do_not_keep_calls_waiting(
    kubelet: Kubelet, api: ApiServer, start_agent: Start
) -> None:
    agent = start_agent()
    ready(kubelet)
    api.bind("train", whole(2), AMD)
    assert agent.kubelet is not None
    plugin = agent.kubelet.plugins[AMD]
    with streams(kubelet, AMD, 20) as watches:
        others = MAX_STREAMS - 1  # the kubelet has one, and keeps it
        assert outcomes(watches) == ["4 devices"] * others + ["RESOURCE_EXHAUSTED"] * (20 - others)
        assert len(kubelet.healthy(AMD)) == 4
        assert renders(allocate(kubelet, AMD, [IDS[2]])[0]) == ["/dev/dri/renderD144"]
    wait_until(lambda: len(plugin._streams) == 1)
    with streams(kubelet, AMD, others) as watches:  # those who left made room
        assert outcomes(watches) == ["4 devices"] * others


def test_names_that_were_never_offered_are_refused(kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    start_agent()
    ready(kubelet)
    api.bind("train", whole(2), AMD)
    code, details = refused(kubelet, AMD, ["nonsense"])
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details == "kaiwo: 'nonsense': not offered as amd.com/gpu by this node"
    code, details = refused(kubelet, AMD, [f"x{number}" * 100_000 for number in range(5)])
    assert (code, len(details) < 400) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert "and 2 more" in details
    assert refused(kubelet, AMD, [IDS[2], IDS[2]])[1] == f"kaiwo: '{IDS[2]}': requested twice in one call"
    assert refused(kubelet, AMD, [IDS[2]], [IDS[2]])[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert refused(kubelet, AMD, [f"{IDS[2]}::0"])[0] is grpc.StatusCode.INVALID_ARGUMENT  # a name of another resource
    assert refused(kubelet, SHARE_RESOURCE, [IDS[2]])[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert renders(allocate(kubelet, AMD, [IDS[2]])[0]) == ["/dev/dri/renderD144"]  # the pod still has its turn


@pytest.mark.parametrize("resource", [AMD, SHARE_RESOURCE])
def test_one_call_does_not_give_two_containers_the_same_devices(
    kubelet: Kubelet, api: ApiServer, start_agent: Start, resource: str
) -> None:
    start_agent()
    ready(kubelet)
    names = IDS if resource == AMD else [f"{gpu}::7" for gpu in IDS]
    api.bind("only", whole(0) if resource == AMD else share(0, 500), resource)
    code, details = refused(kubelet, resource, [names[0]], [names[1]])
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert f"no pod on this node waits for 1 {resource}" in details
    assert renders(allocate(kubelet, resource, [names[0]])[0]) == ["/dev/dri/renderD128"]  # nothing was given yet


def test_two_containers_of_one_call_get_what_is_theirs(kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    start_agent()
    ready(kubelet)
    api.bind("both", whole(3, 1), AMD, containers={"one": 1, "two": 1})
    first, second = allocate(kubelet, AMD, [IDS[0]], [IDS[1]])
    assert (renders(first), renders(second)) == (["/dev/dri/renderD152"], ["/dev/dri/renderD136"])
