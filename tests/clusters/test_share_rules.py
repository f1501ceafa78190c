"""A plan may be a moment old: no pod starts on a GPU whose tenants, as they are now, may not share with it."""

import pytest

from kaiwo.clusters.ledger import Ledger
from kaiwo.clusters.plan_checks import Owners, find_misfit
from kaiwo.model.gpus.gpu import Gpu, Share, ShareRule
from kaiwo.model.node import Node
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Role, Workload

HALF = Request(gpus=1, gpu_milli=400)


def pod(name: str, gpu: str = "gpu-0", rule: ShareRule = ()) -> Pod:
    return Pod(f"default/{name}", "main-0", "a", Phase.ASSUMED, (Share(gpu, 400, 1000),), share_with=rule)


def work(name: str, queue: str = "lab", user: str = "ada") -> Workload:
    return Workload(f"default/{name}", (Role(HALF),), queue, user)


def misfit(starting: Pod, *running: Pod, known: tuple[Workload, ...], **of: ShareRule) -> str:
    """Why it may not start; `of` has the rules of queues, and of the node."""
    label = {"kaiwo.ai/gpu-share-with": ".".join(of["node"])} if of.get("node") else {}
    node = Node("a", 8_000, 8_000, gpus=(Gpu("gpu-0", "MI300X", 9_000), Gpu("gpu-1", "MI300X", 9_000)), labels=label)
    ledger = Ledger()
    for each in running:
        ledger.take(each)
    queues = {name: Queue(name, "all", share_with=of.get(name, ())) for name in ("lab", "ops")}
    queues["all"] = Queue("all", share_with=of.get("all", ()))
    owners = Owners({each.name: each for each in known}.get, queues)
    found = find_misfit(owners.workload(starting.workload) or work("x"), [starting], [], {"a": node}, ledger, owners)
    for each in running:
        ledger.give_back(each)
    assert not list(ledger.pods_sharing("a", "gpu-0"))
    return found.why if found else ""


REFUSED = "others use gpu-0 of node a, with whom it may not share a GPU"


@pytest.mark.parametrize(
    ("own", "other", "of", "refused"),
    [
        ((), (), {}, ""),
        (("nobody",), (), {}, REFUSED),
        ((), ("nobody",), {}, REFUSED),
        ((), ("user",), {}, ""),
        ((), ("queue",), {}, REFUSED),
        ((), (), {"lab": ("queue",)}, REFUSED),
        ((), (), {"all": ("queue",)}, REFUSED),
        ((), (), {"node": ("queue",)}, REFUSED),
        ((), (), {"node": ("namespace",)}, ""),
    ],
)
def test_no_rule_is_broken(own: ShareRule, other: ShareRule, of: dict[str, ShareRule], refused: str) -> None:
    known = (work("new"), work("old", "ops"))
    assert misfit(pod("new", rule=own), pod("old", rule=other), known=known, **of) == refused
    assert misfit(pod("new", rule=own), pod("old", "gpu-1", other), known=known, **of) == ""


def test_work_of_another_scheduler_has_a_namespace_but_no_queue_and_no_user() -> None:
    assert misfit(pod("new", rule=("user",)), pod("foreign"), known=(work("new"),)) == REFUSED
    assert misfit(pod("new", rule=("namespace",)), pod("foreign"), known=(work("new"),)) == ""
    assert misfit(pod("new"), pod("foreign"), known=(work("new"),)) == ""
