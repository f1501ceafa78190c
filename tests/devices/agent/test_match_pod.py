"""Whose turn it is at Allocate: pods that ended, pods that were refused, pods of one second; and by which words."""

import grpc
import pytest

from kaiwo.devices.agent.kubelet.bound_pods import SHARE_RESOURCE
from kaiwo.gpus.isolation_grades import grade_of
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.request import Request
from tests.devices.agent.conftest import AMD, Start
from tests.devices.agent.fake_kubelet import ApiServer, Kubelet
from tests.devices.agent.test_device_plugin import ready, share, whole


@pytest.mark.parametrize("is_listed", [True, False])
def test_what_ended_pods_had_is_free_for_the_next_at_once(
    kubelet: Kubelet, api: ApiServer, start_agent: Start, is_listed: bool
) -> None:
    start_agent(interval_s=3600.0)  # it does not come to look by itself
    ready(kubelet)
    for name in ("a", "b"):
        api.bind(name, share(0, 500), SHARE_RESOURCE)
        names, _ = kubelet.admit("team", name, "main", SHARE_RESOURCE, 1)
        kubelet.start_container(SHARE_RESOURCE, names)
    kubelet.held.clear()
    for name in ("a", "b"):
        api.pods[name]["status"]["phase"] = "Succeeded"
    if not is_listed:
        api.pods.clear()
    api.bind("next", share(0, 600), SHARE_RESOURCE)
    assert kubelet.admit("team", "next", "main", SHARE_RESOURCE, 1)[1].envs["HSA_CU_MASK"] == "0:0-175"


def test_a_list_that_lags_behind_does_not_take_units_from_who_has_them(
    kubelet: Kubelet, api: ApiServer, start_agent: Start
) -> None:
    agent = start_agent(interval_s=3600.0)
    ready(kubelet)
    api.bind("first", share(0, 500), SHARE_RESOURCE)
    kubelet.admit("team", "first", "main", SHARE_RESOURCE, 1)
    api.is_late = True
    assert agent.kubelet is not None
    assert agent.kubelet.allocator.release_ended() == []
    assert len(agent.kubelet.sharing.grants) == 1


def test_a_pod_that_was_refused_does_not_stand_in_the_way_of_others(
    kubelet: Kubelet, api: ApiServer, start_agent: Start
) -> None:
    start_agent()
    ready(kubelet)
    strict = {"kaiwo.ai/gpu-isolation-grade": "memory-capped", "containers": {"one": 1, "two": 1}}
    api.bind("bad", (*share(0, 300), *share(1, 300)), SHARE_RESOURCE, **strict)
    for name in ("good-1", "good-2"):
        api.bind(name, share(0, 200), SHARE_RESOURCE)
    with pytest.raises(grpc.RpcError, match=r"pod team/bad: .* but memory-capped is required"):
        kubelet.admit("team", "bad", "one", SHARE_RESOURCE, 1)
    masks = []
    for name in ("good-1", "good-2"):  # the API server does not say yet that the first one failed
        names, answer = kubelet.admit("team", name, "main", SHARE_RESOURCE, 1)
        kubelet.start_container(SHARE_RESOURCE, names)
        masks.append(answer.envs["HSA_CU_MASK"])
    assert masks == ["0:0-55", "0:56-111"]


def test_while_a_refused_pod_may_be_meant_the_kubelet_must_say_who_starts(
    kubelet: Kubelet, api: ApiServer, start_agent: Start
) -> None:
    start_agent()
    ready(kubelet)
    api.bind("bad", share(0, 300), SHARE_RESOURCE, **{"kaiwo.ai/gpu-isolation-grade": "memory-capped"})
    api.bind("good", share(0, 300), SHARE_RESOURCE)
    with pytest.raises(grpc.RpcError):
        kubelet.admit("team", "good", "main", SHARE_RESOURCE, 1)  # taken for the other, and refused in its name
    names, _ = kubelet.admit("team", "bad", "main", SHARE_RESOURCE, 1)
    kubelet.is_mute = True
    with pytest.raises(grpc.RpcError, match="did not list its pod resources"):
        kubelet.start_container(SHARE_RESOURCE, names)
    kubelet.is_mute = False
    with pytest.raises(grpc.RpcError, match="bad was about to start on the devices of team/good"):
        kubelet.start_container(SHARE_RESOURCE, names)


def test_pods_bound_in_one_second_come_in_the_order_in_which_they_were_made(
    kubelet: Kubelet, api: ApiServer, start_agent: Start
) -> None:
    start_agent()
    ready(kubelet)
    sizes = {"c": 100, "a": 200, "b": 300}  # by uid the order would be another
    for second, (name, milli) in enumerate(sizes.items()):
        api.bind(name, share(0, milli), SHARE_RESOURCE)
        api.pods[name]["metadata"]["creationTimestamp"] = f"2026-11-15T08:59:{second:02}Z"
        api.pods[name]["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-15T09:00:10Z"
    for name in sizes:
        names, _ = kubelet.admit("team", name, "main", SHARE_RESOURCE, 1)
        kubelet.start_container(SHARE_RESOURCE, names)


@pytest.mark.parametrize("prefix", ["kaiwo.ai", "kaiwo.silogen.ai"])
def test_isolation_is_read_under_both_names(kubelet: Kubelet, api: ApiServer, start_agent: Start, prefix: str) -> None:
    start_agent()
    ready(kubelet)
    api.bind("turns", share(0, 500), SHARE_RESOURCE, **{f"{prefix}/gpu-isolation": "time-slicing"})
    _, answer = kubelet.admit("team", "turns", "main", SHARE_RESOURCE, 1)
    assert answer.annotations["kaiwo.ai/gpu-grade"] == "time-slicing"


@pytest.mark.parametrize("prefix", ["kaiwo.ai", "kaiwo.silogen.ai"])
def test_who_lets_others_on_its_gpus_takes_turns_there(
    kubelet: Kubelet, api: ApiServer, start_agent: Start, prefix: str
) -> None:
    start_agent()
    ready(kubelet)
    sharing = {f"{prefix}/gpu-sharing": "true"}
    for name, notes, grade in (
        ("turns", sharing, "time-slicing"),
        ("masked", sharing | {f"{prefix}/gpu-isolation": "cu-mask"}, "cu-mask"),
        ("quarter", sharing | {f"{prefix}/gpu-fraction": "0.25"}, "cu-mask"),
    ):
        api.bind(name, share(0, 250), SHARE_RESOURCE, **notes)
        names, answer = kubelet.admit("team", name, "main", SHARE_RESOURCE, 1)
        kubelet.start_container(SHARE_RESOURCE, names)
        assert answer.annotations["kaiwo.ai/gpu-grade"] == grade, name


def test_a_whole_gpu_is_exclusive_as_the_scheduler_has_it(kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    start_agent()
    ready(kubelet)
    notes = {"kaiwo.ai/gpu-sharing": "true", "kaiwo.ai/gpu-isolation-grade": "partition"}
    api.bind("train", whole(0), AMD, **notes)
    _, answer = kubelet.admit("team", "train", "main", AMD, 1)
    assert answer.annotations["kaiwo.ai/gpu-grade"] == grade_of(Request(gpus=1), Gpu("0", "MI300X", 196_608), {})
