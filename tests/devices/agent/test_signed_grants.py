"""The agent gives devices only to pods whose grant Kaiwo's scheduler signed, and never the same device twice."""

import grpc
import pytest

from kaiwo.clusters.kubernetes.grants.grant_signer import GrantSigner
from kaiwo.clusters.kubernetes.grants.key_set import KeySet, make_key, renew
from kaiwo.devices.agent.kubelet.bound_pods import SHARE_RESOURCE, encode_granted
from kaiwo.devices.agent_messages import HeldDevices
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.grant_signature import SIGNATURE_ANNOTATION
from tests.devices.agent.conftest import AMD, Start
from tests.devices.agent.fake_kubelet import ApiServer, Kubelet
from tests.devices.agent.test_device_plugin import ready, share, whole
from tests.waiting import wait_until

KEYS = "kaiwo-system/kaiwo-grants"


class Scheduler:
    """Signs as the scheduler does, and publishes its keys where agents read them."""

    def __init__(self, api: ApiServer) -> None:
        self.api, self.signer = api, GrantSigner()
        self.use(KeySet((make_key(0),), is_first_signing=False))

    def use(self, keys: KeySet) -> None:
        self.signer.use(keys)
        self.api.public_keys = keys.public_keys

    def rotate(self) -> None:
        self.use(renew(self.signer.keys, now_s=1, is_all_signed=False, life_s=1))

    def bind(self, name: str, shares: tuple[Share, ...], resource: str = AMD, node: str = "node-1") -> None:
        signature = self.signer.sign(f"uid-{name}", node, encode_granted(shares))
        self.api.bind(name, shares, resource, **{SIGNATURE_ANNOTATION: signature})


@pytest.fixture
def scheduler(api: ApiServer) -> Scheduler:
    return Scheduler(api)


def admit(kubelet: Kubelet, name: str, count: int = 1, resource: str = AMD) -> list[str]:
    """The names that the kubelet gave to the pod, which has started."""
    names, _ = kubelet.admit("team", name, "main", resource, count)
    kubelet.start_container(resource, names)
    return names


def refusal(kubelet: Kubelet, name: str, count: int = 1, resource: str = AMD) -> str:
    """What the kubelet writes on the pod that the agent refused."""
    with pytest.raises(grpc.RpcError) as refused:
        admit(kubelet, name, count, resource)
    return refused.value.details() or ""


def test_a_signed_grant_is_honoured(kubelet: Kubelet, scheduler: Scheduler, start_agent: Start) -> None:
    start_agent(grant_keys=KEYS)
    ready(kubelet)
    scheduler.bind("train", whole(3, 1))
    assert sorted(admit(kubelet, "train", 2)) == sorted(gpu.gpu for gpu in whole(1, 3))
    asked = len([path for path in scheduler.api.asked if "/configmaps/" in path])
    scheduler.bind("more", whole(0))
    admit(kubelet, "more")
    assert len([path for path in scheduler.api.asked if "/configmaps/" in path]) == asked  # the keys are known


@pytest.mark.parametrize("attempt", ["unsigned", "of-another-pod", "of-another-node", "of-other-devices", "of-own-key"])
def test_a_forged_grant_gets_nothing_and_an_event_says_why(
    attempt: str, kubelet: Kubelet, api: ApiServer, scheduler: Scheduler, start_agent: Start
) -> None:
    start_agent(grant_keys=KEYS)
    ready(kubelet)
    stranger = GrantSigner()
    stranger.use(KeySet((make_key(0),)))
    devices = encode_granted(whole(2))
    signatures = {
        "unsigned": "",
        "of-another-pod": scheduler.signer.sign("uid-victim", "node-1", devices),
        "of-another-node": scheduler.signer.sign("uid-thief", "node-2", devices),
        "of-other-devices": scheduler.signer.sign("uid-thief", "node-1", encode_granted(whole(3))),
        "of-own-key": stranger.sign("uid-thief", "node-1", devices),
    }
    api.bind("thief", whole(2), AMD, **{SIGNATURE_ANNOTATION: signatures[attempt]})
    assert "is not signed by Kaiwo's scheduler" in refusal(kubelet, "thief")
    wait_until(lambda: api.events, "the Event")
    (event,) = api.events
    assert (event["reason"], event["involvedObject"]["name"]) == ("GrantRefused", "thief")
    assert "is not signed by Kaiwo's scheduler" in event["message"]


def test_a_pod_of_another_scheduler_gets_nothing_even_with_a_grant(
    kubelet: Kubelet, api: ApiServer, scheduler: Scheduler, start_agent: Start
) -> None:
    start_agent(grant_keys=KEYS)
    ready(kubelet)
    api.bind("thief", whole(2), AMD, scheduler="default-scheduler")
    assert "its schedulerName is default-scheduler" in refusal(kubelet, "thief")


def test_a_forged_pod_does_not_keep_an_honest_one_from_its_devices(
    kubelet: Kubelet, api: ApiServer, scheduler: Scheduler, start_agent: Start
) -> None:
    """The kubelet does not say for whom it asks: while both wait, the thief must not start on what the other got."""
    start_agent(grant_keys=KEYS)
    ready(kubelet)
    api.bind("thief", whole(2), AMD)
    scheduler.bind("honest", whole(2))
    names, _ = kubelet.admit("team", "thief", "main", AMD, 1)  # the agent assumes that it is the honest one
    with pytest.raises(grpc.RpcError, match="is not signed by Kaiwo's scheduler"):
        kubelet.start_container(AMD, names)
    kubelet.held.clear()
    del api.pods["thief"]
    admit(kubelet, "honest")


def test_until_the_scheduler_publishes_a_key_grants_are_honoured_as_before(
    kubelet: Kubelet, api: ApiServer, start_agent: Start
) -> None:
    start_agent(grant_keys=KEYS)
    ready(kubelet)
    api.bind("old", whole(0), AMD)
    admit(kubelet, "old")
    Scheduler(api)
    api.bind("late", whole(1), AMD)
    assert "is not signed" in refusal(kubelet, "late")


def test_a_pod_from_before_the_keys_keeps_what_it_was_given_and_cannot_change_it(
    kubelet: Kubelet, api: ApiServer, start_agent: Start
) -> None:
    agent = start_agent()  # an agent of before
    ready(kubelet)
    api.bind("old", whole(0), AMD, containers={"main": 1})
    names = admit(kubelet, "old")
    agent.wait()  # type: ignore[attr-defined]
    Scheduler(api)
    api.bind("old", whole(3), AMD)  # its owner annotates another device
    agent = start_agent(grant_keys=KEYS)
    ready(kubelet)
    kubelet.start_container(AMD, names)  # its container restarts
    assert agent.hello().held == (HeldDevices("team", "old", "uid-old", whole(0)),)


def test_keys_that_cannot_be_read_honour_nothing(
    kubelet: Kubelet, api: ApiServer, scheduler: Scheduler, start_agent: Start
) -> None:
    start_agent(grant_keys=KEYS)
    ready(kubelet)
    api.hides_keys = True
    scheduler.bind("train", whole(0))
    assert "503" in refusal(kubelet, "train")
    api.hides_keys = False
    admit(kubelet, "train")


def test_a_new_key_is_honoured_at_once_and_the_former_one_until_it_is_dropped(
    kubelet: Kubelet, api: ApiServer, scheduler: Scheduler, start_agent: Start
) -> None:
    start_agent(grant_keys=KEYS)
    ready(kubelet)
    scheduler.bind("first", whole(0))
    scheduler.bind("second", whole(1))
    admit(kubelet, "first")
    scheduler.rotate()
    scheduler.bind("third", whole(2))
    admit(kubelet, "second")
    admit(kubelet, "third")
    former = scheduler.signer.keys
    scheduler.use(renew(former, now_s=1, is_all_signed=True, life_s=9))
    assert len(former.keys) == 2
    assert len(scheduler.signer.keys.keys) == 1


def test_a_device_that_a_living_pod_holds_is_not_given_out_again(
    kubelet: Kubelet, api: ApiServer, scheduler: Scheduler, start_agent: Start
) -> None:
    """Whatever was signed by mistake, two pods never have one exclusive device; the Event names both."""
    start_agent(grant_keys=KEYS)
    ready(kubelet)
    scheduler.bind("holder", whole(2))
    admit(kubelet, "holder")
    scheduler.bind("second", whole(2))
    said = refusal(kubelet, "second")
    assert "is held by pod team/holder" in said
    wait_until(lambda: api.events, "the Event")
    (event,) = api.events
    assert event["reason"] == "DeviceInUse"
    assert (event["involvedObject"]["name"], event["related"]["name"]) == ("second", "holder")
    assert "team/holder" in event["message"]
    api.pods["holder"]["status"]["phase"] = "Succeeded"
    kubelet.held.clear()
    admit(kubelet, "second")


def test_shares_fill_a_device_and_not_more(
    kubelet: Kubelet, api: ApiServer, scheduler: Scheduler, start_agent: Start
) -> None:
    start_agent(grant_keys=KEYS)
    ready(kubelet)
    for name, milli in (("small", 300), ("large", 700)):
        scheduler.bind(name, share(1, milli), SHARE_RESOURCE)
        admit(kubelet, name, resource=SHARE_RESOURCE)
    scheduler.bind("more", share(1, 100), SHARE_RESOURCE)
    assert "is held by pod team/large" in refusal(kubelet, "more", resource=SHARE_RESOURCE)


def test_an_agent_that_does_not_verify_says_nothing_about_holders(
    kubelet: Kubelet, api: ApiServer, start_agent: Start
) -> None:
    agent = start_agent()
    ready(kubelet)
    api.bind("some", whole(0), AMD)
    admit(kubelet, "some")
    assert agent.hello().held is None
