"""Pods as a kubelet admits them: several devices, start-up containers, sidecars, pods that are not ours or leave."""

from typing import Any

import grpc
import pytest

from kaiwo.devices.agent.kubelet.bound_pods import SHARE_RESOURCE
from kaiwo.devices.agent_messages import Correction
from tests.devices.agent.conftest import AMD, Start
from tests.devices.agent.fake_kubelet import ApiServer, Kubelet
from tests.devices.agent.test_device_plugin import IDS, ready, share, whole
from tests.devices.agent.test_device_plugin_calls import renders

RENDERS = [f"/dev/dri/renderD{128 + 8 * number}" for number in range(4)]


@pytest.fixture
def told(kubelet: Kubelet, start_agent: Start) -> list[Correction]:
    agent = start_agent()
    ready(kubelet)
    found: list[Correction] = []
    assert agent.kubelet is not None
    agent.kubelet.allocator.report = found.append
    return found


def admit(kubelet: Kubelet, api: ApiServer, name: str) -> dict[str, tuple[list[str], Any]]:
    return kubelet.admit_pod(api.pods[name])


def start(kubelet: Kubelet, admitted: dict[str, tuple[list[str], Any]], resource: str = AMD) -> None:
    for names, _ in admitted.values():
        kubelet.start_container(resource, names)


def test_pods_of_several_devices_start_in_the_order_in_which_they_were_bound(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    api.bind("one", whole(0, 1), AMD)
    api.bind("two", whole(2, 3), AMD)
    admitted = {name: admit(kubelet, api, name) for name in ("one", "two")}
    for name in admitted:
        start(kubelet, admitted[name])
    assert [renders(admitted[name]["main"][1]) for name in admitted] == [RENDERS[:2], RENDERS[2:]]
    assert told == []


def test_pods_of_several_devices_exchange_them_too(kubelet: Kubelet, api: ApiServer, told: list[Correction]) -> None:
    api.bind("one", whole(0, 1), AMD)
    api.bind("two", whole(2, 3), AMD)
    admitted = {name: admit(kubelet, api, name) for name in ("two", "one")}
    for name in admitted:
        start(kubelet, admitted[name])
    assert [renders(admitted[name]["main"][1]) for name in admitted] == [RENDERS[:2], RENDERS[2:]]
    assert {line.pod: line.devices for line in told} == {"two": whole(0, 1), "one": whole(2, 3)}


def test_several_shares_of_another_size_are_never_started_on(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    api.bind("small", (*share(0, 300), *share(1, 300)), SHARE_RESOURCE)
    api.bind("large", (*share(2, 700), *share(3, 700)), SHARE_RESOURCE)
    admitted = {name: admit(kubelet, api, name) for name in ("large", "small")}
    for name in admitted:
        with pytest.raises(grpc.RpcError, match=f"{name} was about to start on the devices of .* of another size"):
            start(kubelet, admitted[name], SHARE_RESOURCE)
    assert told == []


def test_the_last_of_those_that_were_mixed_up_is_not_taken_for_certain(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    api.bind("small", share(0, 300), SHARE_RESOURCE)
    api.bind("large", share(1, 700), SHARE_RESOURCE)
    admit(kubelet, api, "large")
    last = admit(kubelet, api, "small")
    kubelet.is_mute = True
    with pytest.raises(grpc.RpcError, match="did not list its pod resources"):
        start(kubelet, last, SHARE_RESOURCE)


def test_who_is_not_known_does_not_start_on_the_devices_of_another(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    api.bind("ours", whole(0, 1), AMD)
    names, _ = kubelet.admit("team", "unknown", "main", AMD, 2)
    with pytest.raises(grpc.RpcError, match="team/unknown was about to start on the devices of team/ours"):
        kubelet.start_container(AMD, names)
    with pytest.raises(grpc.RpcError, match="team/unknown"):  # a kubelet tries again and again
        kubelet.start_container(AMD, names)


def test_a_sidecar_has_devices_of_its_own(kubelet: Kubelet, api: ApiServer, told: list[Correction]) -> None:
    api.bind("pod", whole(0, 1, 2), AMD, sidecars={"proxy": 1}, containers={"main": 2})
    admitted = admit(kubelet, api, "pod")
    start(kubelet, admitted)
    assert renders(admitted["proxy"][1]) == RENDERS[:1]
    assert renders(admitted["main"][1]) == RENDERS[1:3]
    assert told == []


def test_a_sidecar_has_a_share_of_its_own(kubelet: Kubelet, api: ApiServer, told: list[Correction]) -> None:
    api.bind("pod", (*share(0, 500), *share(1, 500)), SHARE_RESOURCE, sidecars={"proxy": 1}, containers={"main": 1})
    admitted = admit(kubelet, api, "pod")
    start(kubelet, admitted, SHARE_RESOURCE)
    assert [renders(answer) for _, answer in admitted.values()] == [RENDERS[:1], RENDERS[1:2]]


def test_a_start_up_container_comes_after_the_devices_of_sidecars_before_it(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    api.bind("pod", whole(0, 1), AMD, init={"prepare": 1}, sidecars={"proxy": 1}, containers={"main": 1})
    api.pods["pod"]["spec"]["initContainers"].reverse()  # the sidecar is there when `prepare` runs
    admitted = admit(kubelet, api, "pod")
    start(kubelet, admitted)
    given = {name: renders(answer) for name, (_, answer) in admitted.items()}
    assert given == {"proxy": RENDERS[:1], "prepare": RENDERS[1:2], "main": RENDERS[1:2]}


def test_a_sidecar_may_go_on_with_the_names_of_a_start_up_container(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    kinds = {"init": {"prepare": 1}, "sidecars": {"proxy": 1}, "containers": {"main": 1}}
    api.bind("pod", (*share(0, 600), *share(1, 600)), SHARE_RESOURCE, **kinds)
    api.bind("next", share(2, 600), SHARE_RESOURCE)
    admitted = admit(kubelet, api, "pod")
    assert admitted["prepare"][0] == admitted["proxy"][0] != admitted["main"][0]
    start(kubelet, admitted, SHARE_RESOURCE)
    masks = {name: answer.envs["HSA_CU_MASK"] for name, (_, answer) in admitted.items()}
    assert masks["prepare"] == masks["proxy"] == masks["main"] == "0:0-175"
    assert [renders(answer) for _, answer in admitted.values()] == [RENDERS[:1], RENDERS[:1], RENDERS[1:2]]


@pytest.mark.parametrize(("first", "then"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_pods_with_start_up_containers_of_any_size_start(
    kubelet: Kubelet, api: ApiServer, told: list[Correction], first: int, then: int
) -> None:
    api.bind("one", whole(0, 1)[: max(first, then)], AMD, init={"prepare": first}, containers={"main": then})
    api.bind("two", whole(2, 3)[: max(first, then)], AMD, init={"prepare": first}, containers={"main": then})
    admitted = {name: admit(kubelet, api, name) for name in ("one", "two")}
    for name in admitted:
        start(kubelet, admitted[name])
    given = [[renders(answer) for _, answer in one.values()] for one in admitted.values()]
    assert given == [[RENDERS[:first], RENDERS[:then]], [RENDERS[2 : 2 + first], RENDERS[2 : 2 + then]]]
    assert told == []


@pytest.mark.parametrize(("first", "then"), [(1, 1), (2, 1), (1, 2)])
def test_and_exchange_all_they_have_when_they_were_mixed_up(
    kubelet: Kubelet, api: ApiServer, told: list[Correction], first: int, then: int
) -> None:
    api.bind("one", whole(0, 1)[: max(first, then)], AMD, init={"prepare": first}, containers={"main": then})
    api.bind("two", whole(2, 3)[: max(first, then)], AMD, init={"prepare": first}, containers={"main": then})
    two = admit(kubelet, api, "two")
    start(kubelet, two)
    one = admit(kubelet, api, "one")
    start(kubelet, one)
    assert [renders(answer) for _, answer in two.values()] == [RENDERS[:first], RENDERS[:then]]
    assert [renders(answer) for _, answer in one.values()] == [RENDERS[2 : 2 + first], RENDERS[2 : 2 + then]]
    now = {line.pod: {device.gpu for device in line.devices} for line in told}
    most = max(first, then)
    assert now == {"two": set(IDS[:most]), "one": set(IDS[2 : 2 + most])}


def test_what_a_larger_start_up_container_has_of_another_gpu_is_not_given_away(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    shares = (*share(0, 600), *share(1, 600))
    api.bind("pod", shares, SHARE_RESOURCE, init={"prepare": 2}, containers={"main": 1})
    admitted = admit(kubelet, api, "pod")
    api.bind("next", share(1, 300), SHARE_RESOURCE)
    other = admit(kubelet, api, "next")
    start(kubelet, admitted, SHARE_RESOURCE)
    start(kubelet, other, SHARE_RESOURCE)
    assert admitted["prepare"][1].envs["HSA_CU_MASK"] == "0:0-175;1:0-175"
    assert admitted["main"][1].envs["HSA_CU_MASK"] == "0:0-175"
    assert other["main"][1].envs["HSA_CU_MASK"] == "0:176-263"


def test_a_start_up_container_that_nobody_follows_is_found_by_who_else_it_could_be(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    api.bind("compile", whole(0), AMD, init={"prepare": 1}, containers={"main": 0})
    api.bind("train", whole(1), AMD)
    admitted = {name: admit(kubelet, api, name) for name in ("train", "compile")}  # each is taken for the other
    for name in admitted:
        start(kubelet, admitted[name])
    assert {line.pod: line.devices for line in told} == {"train": whole(0), "compile": whole(1)}
    assert renders(admitted["train"]["main"][1]) == RENDERS[:1]


def test_two_of_those_cannot_be_told_apart_and_are_told_so(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    for number, name in enumerate(("a", "b")):
        api.bind(name, whole(number), AMD, init={"prepare": 1}, containers={"main": 0})
    admitted = {name: admit(kubelet, api, name) for name in ("a", "b")}
    for one in admitted.values():
        with pytest.raises(grpc.RpcError, match="the kubelet lists no init containers, and it may be team/a or"):
            start(kubelet, one)


def test_a_pod_of_another_scheduler_fails_alone(kubelet: Kubelet, api: ApiServer, told: list[Correction]) -> None:
    api.bind("ours", whole(0), AMD)
    api.bind("foreign", (), AMD, containers={"main": 1})
    foreign = admit(kubelet, api, "foreign")
    with pytest.raises(grpc.RpcError, match=r"team/foreign .* of team/ours.* has no kaiwo.ai/granted-devices") as error:
        start(kubelet, foreign)
    assert "size" not in error.value.details()  # type: ignore[attr-defined]
    ours = admit(kubelet, api, "ours")
    start(kubelet, ours)
    assert renders(ours["main"][1]) == RENDERS[:1]
    with pytest.raises(grpc.RpcError, match=r"team/foreign .* has no kaiwo.ai/granted-devices"):
        start(kubelet, foreign)
    assert told == []


def test_a_pod_of_another_scheduler_is_a_doubt(kubelet: Kubelet, api: ApiServer, told: list[Correction]) -> None:
    api.bind("ours", whole(0), AMD)
    api.bind("foreign", (), AMD, containers={"main": 1})
    foreign = admit(kubelet, api, "foreign")
    kubelet.is_mute = True
    with pytest.raises(grpc.RpcError, match="did not list its pod resources"):
        start(kubelet, foreign)


def test_the_pod_whose_turn_was_taken_by_one_of_another_size_has_it_back(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    api.bind("small", share(0, 300), SHARE_RESOURCE)
    api.bind("large", share(1, 700), SHARE_RESOURCE)
    large = admit(kubelet, api, "large")
    with pytest.raises(grpc.RpcError, match="large was about to start on the devices of team/small"):
        start(kubelet, large, SHARE_RESOURCE)
    small = admit(kubelet, api, "small")
    start(kubelet, small, SHARE_RESOURCE)
    assert small["main"][1].envs["HSA_CU_MASK"] == "0:0-87"


def test_a_pod_that_leaves_comes_after_all_others(kubelet: Kubelet, api: ApiServer, told: list[Correction]) -> None:
    api.bind("gone", share(1, 300), SHARE_RESOURCE)
    api.pods["gone"]["metadata"]["deletionTimestamp"] = "2026-11-15T09:00:30Z"
    api.bind("next", share(2, 700), SHARE_RESOURCE)
    admitted = admit(kubelet, api, "next")
    start(kubelet, admitted, SHARE_RESOURCE)
    assert renders(admitted["main"][1]) == RENDERS[2:3]
    late = admit(kubelet, api, "gone")  # a kubelet may see it in time
    start(kubelet, late, SHARE_RESOURCE)


def test_names_that_go_on_in_the_name_of_two_pods_do_not_start(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    """The start-up container was taken for another pod, and what followed it was not: one pod, the devices of two."""
    api.bind("plain", whole(0), AMD)
    api.bind("staged", whole(1), AMD, init={"prepare": 1})
    staged = admit(kubelet, api, "staged")
    with pytest.raises(grpc.RpcError, match="of two pods"):
        start(kubelet, staged)
    plain = admit(kubelet, api, "plain")
    start(kubelet, plain)
    assert renders(plain["main"][1]) == RENDERS[:1]


def test_the_kubelets_list_has_an_entry_for_every_device(kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    """What these tests rest on: containerDevicesFromResourceDeviceInstances and server_v1.go of Kubernetes."""
    start_agent()
    ready(kubelet)
    api.bind("pod", whole(0, 1, 2, 3), AMD, init={"prepare": 4}, sidecars={"proxy": 1}, containers={"main": 2})
    kubelet.admit_pod(api.pods["pod"])
    listed = kubelet._list(None, None).pod_resources
    assert [pod.name for pod in listed] == ["pod"]
    counts = {one.name: [len(entry.device_ids) for entry in one.devices] for one in listed[0].containers}
    assert counts == {"proxy": [1], "main": [1, 1]}


def test_a_pod_that_failed_does_not_veto_one_that_is_asked_for_again(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    api.bind("ours", whole(0), AMD)
    api.bind("foreign", (), AMD, containers={"main": 1})
    with pytest.raises(grpc.RpcError, match="granted-devices"):
        start(kubelet, admit(kubelet, api, "foreign"))
    start(kubelet, admit(kubelet, api, "ours"))
    kubelet.held.clear()  # the kubelet lost its list
    again = admit(kubelet, api, "ours")
    start(kubelet, again)
    assert renders(again["main"][1]) == RENDERS[:1]


def test_all_whose_turns_one_pod_took_have_them_back(kubelet: Kubelet, api: ApiServer, told: list[Correction]) -> None:
    api.bind("one", share(0, 300), SHARE_RESOURCE)
    api.bind("two", share(1, 300), SHARE_RESOURCE)
    api.bind("large", (*share(2, 700), *share(3, 700)), SHARE_RESOURCE, containers={"a": 1, "b": 1})
    with pytest.raises(grpc.RpcError, match="of another size"):
        start(kubelet, admit(kubelet, api, "large"), SHARE_RESOURCE)
    for number, name in enumerate(("one", "two")):
        admitted = admit(kubelet, api, name)
        start(kubelet, admitted, SHARE_RESOURCE)
        assert renders(admitted["main"][1]) == RENDERS[number : number + 1]


def test_what_runs_keeps_its_units_when_the_rest_of_its_pod_fails(
    kubelet: Kubelet, api: ApiServer, start_agent: Start
) -> None:
    agent = start_agent()
    ready(kubelet)
    api.bind("small", share(3, 300), SHARE_RESOURCE)
    shares = (*share(0, 700), *share(1, 700), *share(2, 700))
    api.bind("large", shares, SHARE_RESOURCE, sidecars={"proxy": 2}, containers={"main": 1})
    admitted = admit(kubelet, api, "large")
    kubelet.start_container(SHARE_RESOURCE, admitted["proxy"][0])
    with pytest.raises(grpc.RpcError, match="of another size"):
        kubelet.start_container(SHARE_RESOURCE, admitted["main"][0])
    assert agent.kubelet is not None
    assert [grant.owner.split("/")[1:] for grant in agent.kubelet.sharing.grants] == [["large", "uid-large", "proxy"]]


def test_all_that_a_pod_got_in_the_name_of_another_is_exchanged_at_once(
    kubelet: Kubelet, api: ApiServer, told: list[Correction]
) -> None:
    for name, first in (("one", 0), ("two", 2)):
        api.bind(name, whole(first, first + 1), AMD, init={"prepare": 2}, containers={"main": 1})
    two = admit(kubelet, api, "two")
    kubelet.start_container(AMD, two["prepare"][0])
    one = admit(kubelet, api, "one")  # while the start-up container of the other still runs
    start(kubelet, one)
    kubelet.start_container(AMD, two["main"][0])
    assert [renders(answer) for _, answer in two.values()] == [RENDERS[:2], RENDERS[:1]]
    assert [renders(answer) for _, answer in one.values()] == [RENDERS[2:], RENDERS[2:3]]
