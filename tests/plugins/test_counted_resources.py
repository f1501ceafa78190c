"""Resources that plugins count: licences and cards are never given out twice, and `why` says what is short."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.clusters.ledger import Ledger
from kaiwo.explain.obstacle_sentences import sentence
from kaiwo.model.events import NodeChanged, PoolsChanged
from kaiwo.model.node import CountedAmounts, Node
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod
from kaiwo.plugins.edge_contract import ResourceAmounts
from kaiwo.runtime.edge_points.counted_resources import wrong_amounts
from kaiwo.runtime.loop.counted_nodes import CountedNodes
from tests.plugins.sites import Running, Site, running
from tests.worlds import World

LICENCE, CARD = "example.com/licence", "example.com/card"


def play(site: Site, story: Any) -> None:
    async def whole() -> None:
        async with running(site.load(), site.home) as kaiwo:
            await story(kaiwo)

    asyncio.run(whole())


def licensed(total: int, nodes: int = 3) -> World:
    world = World(nodes=nodes)
    counted = CountedNodes()
    world.tell(*counted.change(CountedAmounts(floating={LICENCE: total}), world.state.node_objects))
    return world


def in_use(world: World, name: str = LICENCE) -> int:
    pods = (pod for pods in world.state.pods.values() for pod in pods.values())
    return sum(amount for pod in pods for resource, amount in pod.extended if resource == name)


def test_floating_licences_are_counted_over_all_nodes() -> None:
    world = licensed(5)
    for at in range(4):
        world.submit(f"w{at}", request=Request(gpus=4, extended=((LICENCE, 2),)))
    world.decide()
    assert in_use(world) == 4
    waiting = min(world.state.backlog.queued_names())
    (obstacle, *_) = world.state.backlog.class_of(waiting).obstacles
    text = f"it needs 2 of {LICENCE}, but of the 5 in the whole cluster 1 are free"
    assert (obstacle.need, obstacle.have, sentence(obstacle)) == (2, 1, text)


def test_a_gang_takes_all_its_licences_or_none() -> None:
    world = licensed(5)
    world.submit("gang", pods=3, request=Request(gpus=4, extended=((LICENCE, 2),)))
    world.submit("one", request=Request(gpus=1, extended=((LICENCE, 5),)))
    world.decide()
    assert in_use(world) == 5
    assert list(world.state.pods) == ["default/one"]


def test_what_ends_gives_its_licence_to_the_next() -> None:
    world = licensed(1)
    for name in ("a", "b"):
        world.submit(name, request=Request(gpus=1, extended=((LICENCE, 1),)))
    world.decide()
    (first,) = list(world.state.pods)
    world.finish(first)
    world.decide()
    assert len(world.state.pods) == 1
    assert in_use(world) == 1


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 12),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=12),
)
def test_no_plan_gives_out_more_licences_than_there_are(total: int, asks: list[tuple[int, int, int]]) -> None:
    world = licensed(total, nodes=4)
    for at, (gpus, licences, pods) in enumerate(asks):
        world.submit(f"w{at}", pods=pods, request=Request(gpus=gpus, extended=((LICENCE, licences),)))
    for _ in range(3):
        world.decide()
        assert in_use(world) <= total
        if world.state.pods:
            world.finish(min(world.state.pods))


def test_the_ledger_refuses_a_plan_that_exceeds_a_pool() -> None:
    ledger, nodes = Ledger(), {"a": Node("a"), "b": Node("b")}
    ledger.counted = CountedAmounts({CARD: {"a": 1}}, {LICENCE: 2})
    ledger.take(Pod("x/y", "main-0", "a", extended=((LICENCE, 1),)))
    pods = [Pod("x/z", f"main-{at}", "b", extended=((LICENCE, 1),)) for at in range(2)]
    assert ledger.refusal(nodes, pods[:1]) == ""
    assert ledger.refusal(nodes, pods) == f"of 2 {LICENCE} 1 are in use, and it needs 2"
    assert ledger.refusal(nodes, [Pod("x/z", "main-0", "a", extended=((CARD, 1),))]) == ""
    assert "not enough" in ledger.refusal(nodes, [Pod("x/z", "main-0", "b", extended=((CARD, 1),))])


def test_the_amounts_are_on_the_nodes_before_the_state_sees_them() -> None:
    counted, plain = CountedNodes(), Node("a", extended={"vendor.com/nic": 2})
    node, pools = counted.change(CountedAmounts({CARD: {"a": 3}}, {LICENCE: 7}), {"a": plain})
    assert isinstance(node, NodeChanged)
    assert node.node.extended == {"vendor.com/nic": 2, CARD: 3, LICENCE: 7}
    assert pools == PoolsChanged({LICENCE: 7})
    assert counted.plain(node.node) == plain
    assert counted.add_to([NodeChanged(plain)]) == [node]
    assert counted.change(CountedAmounts(), {"a": node.node}) == [NodeChanged(plain), PoolsChanged({})]


def test_the_built_in_counts_licences_and_labels_of_a_running_cluster(site: Site) -> None:
    site.allow("counted-resources", config={"floating": {LICENCE: 2}})

    async def story(kaiwo: Running) -> None:
        await kaiwo.until(lambda: kaiwo.loop.state.pools == {LICENCE: 2})
        await kaiwo.submit("a", "b", "c", extended={LICENCE: 1}, takes_s=10)
        await kaiwo.until(lambda: kaiwo.has_started("a", "b"))
        assert not kaiwo.has_started("c")
        kaiwo.cluster.advance(11)
        await kaiwo.until(lambda: kaiwo.has_started("c"))
        await kaiwo.plugins.disable("counted-resources", kaiwo.loop.ask)
        await kaiwo.until(lambda: not kaiwo.loop.state.pools)
        assert all(LICENCE not in node.extended for node in kaiwo.loop.state.node_objects.values())

    play(site, story)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (ResourceAmounts(floating={"example.com/x": -1}), "returned -1 of"),
        (ResourceAmounts(on_nodes={"example.com/x": {"a": 10**10}}), "expected 0 to"),
        (ResourceAmounts(on_nodes={"example.com/x": {"z": 1}}), "does not exist"),
        (ResourceAmounts(floating={"vendor.com/nic": 1}), "report by themselves"),
        (ResourceAmounts(floating={"memory": 1}), "expected a name such as"),
        (ResourceAmounts({"example.com/x": {}}, {"example.com/x": 1}), "counted already"),
        (ResourceAmounts(floating={"example.com/taken": 1}), "counted already"),
        (ResourceAmounts(floating={f"example.com/x{at}": 1 for at in range(65)}), "64 is the most"),
    ],
)
def test_amounts_that_cannot_be_are_refused(found: ResourceAmounts, words: str) -> None:
    nodes = (Node("a", extended={"vendor.com/nic": 2}),)
    assert words in wrong_amounts(found, nodes, {"example.com/taken"})


@pytest.mark.parametrize("name", ["amd.com/gpu", "nvidia.com/gpu", "kaiwo.ai/gpu-share", "example.com/card\n", "cpu"])
def test_what_kaiwo_counts_itself_is_not_for_plugins(name: str) -> None:
    assert wrong_amounts(ResourceAmounts(floating={name: 5}), (), set())
