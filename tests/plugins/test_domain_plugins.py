"""Rules and strategies for domains of the network: plugins keep work out of domains and choose among them."""

import numpy as np
import pytest

from kaiwo.model.errors import ConfigError, PluginError
from kaiwo.model.plan import Plan
from kaiwo.model.policy import Policy
from kaiwo.plugins import BoolArray, DomainTable, IntArray, ReplicaNeed, View
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.contract import Plugin
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.plugins.registry import Registry
from kaiwo.plugins.replica_division import divide_gpus, replicas_of
from kaiwo.plugins.testing import view_of
from tests.worlds import World

RACK = "example.com/rack"


class LastRack:
    """Prefer the rack whose name comes last."""

    name, version, divides_like = "last-rack", "1", "consolidated"

    def __init__(self) -> None:
        self.seen: list[DomainTable] = []

    def placement_strategy(self, view: View, domains: DomainTable, terms: IntArray, weights: IntArray) -> IntArray:
        self.seen.append(domains)
        assert terms.shape == (len(domains), 4)
        return np.array([1000 * (name == max(domains.names)) for name in domains.names], np.int64)


class NotRackOne:
    name, version = "not-rack-one", "1"

    def domain_rule(self, view: View, domains: DomainTable, policy: Policy) -> BoolArray:
        return np.array([name != "r1" for name in domains.names], np.bool_)


class Broken:
    name, version, divides_like = "broken", "1", "consolidated"

    def domain_rule(self, view: View, domains: DomainTable, policy: Policy) -> BoolArray:
        raise ValueError("no")

    def placement_strategy(self, view: View, domains: DomainTable, terms: IntArray, weights: IntArray) -> IntArray:
        return np.full(len(domains), 5_000)


def racks(policy: Policy, *plugins: Plugin) -> World:
    registry = builtin_registry()
    for plugin in plugins:
        registry.add(plugin)
    world = World(nodes=0, policy=policy, plugins=registry)
    for at in range(6):
        world.node(f"node-{at}", labels={RACK: f"r{1 + at // 2}"})
    return world


def gang(world: World, strategy: str = "", required: bool = True) -> Plan:
    level = {"required_level" if required else "preferred_level": RACK}
    world.submit("gang", pods=2, gpus_each=8, placement_strategy=strategy, **level)
    return world.decide()


def test_a_strategy_of_a_plugin_chooses_the_domain() -> None:
    for strategy, policy in (("plugin:last-rack", Policy()), ("", Policy(topology_strategy="plugin:last-rack"))):
        plugin = LastRack()
        plan = gang(racks(policy, plugin), strategy)
        assert [start.node for start in plan.starts] == ["node-4", "node-5"]
        (choice,) = plan.domains
        assert (choice.domain, choice.strategy, choice.score) == ("r3", "plugin:last-rack", 1000)
        assert [(each.workload, each.queue, each.level) for each in plugin.seen[-1:]] == [
            ("default/gang", "default", RACK)
        ]


def test_without_the_plugin_that_it_names_work_is_placed_by_the_policy() -> None:
    plan = gang(racks(Policy()), "plugin:last-rack")
    assert [start.node for start in plan.starts] == ["node-0", "node-1"]


def test_a_rule_keeps_work_out_of_a_domain_even_where_a_level_is_only_preferred() -> None:
    for required in (True, False):
        plan = gang(racks(Policy(), NotRackOne()), required=required)
        assert [start.node for start in plan.starts] == ["node-2", "node-3"]


def test_a_domain_can_be_kept_for_queues() -> None:
    policy = Policy(domain_queues={"r1": ("lab",), "r2": ("default",)})
    assert [start.node for start in gang(racks(policy)).starts] == ["node-2", "node-3"]


@pytest.mark.parametrize("strategy", ["", "plugin:broken"])
def test_a_broken_rule_or_strategy_is_set_aside_and_the_plan_is_the_one_without_it(strategy: str) -> None:
    with_it, without = gang(racks(Policy(), Broken()), strategy), gang(racks(Policy()))
    assert [note.subject for note in with_it.notes] == ["broken"]
    assert [start.node for start in with_it.starts] == [start.node for start in without.starts]


def test_a_policy_that_names_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(PluginError, match="names the plugin 'nobody'"):
        builtin_registry().active(Policy(topology_strategy="plugin:nobody"))
    with pytest.raises(PluginError, match="replicaStrategy is 'nobody'"):
        builtin_registry().active(Policy(replica_strategy="nobody"))
    with pytest.raises(ConfigError, match="unknown 'nobody'"):
        Policy(topology_strategy="nobody")


class Ones:
    name, version = "ones", "1"

    def __init__(self, more: int = 0) -> None:
        self.more = more

    def replica_strategy(self, view: View, need: ReplicaNeed) -> IntArray:
        return np.ones(need.gpus + self.more, np.int64)


@pytest.mark.parametrize("gpus", [1, 7, 8, 9, 100])
def test_gpus_given_are_gpus_asked(gpus: int) -> None:
    view, need = view_of([]), ReplicaNeed(gpus, 8)
    own = replicas_of(builtin_registry().active(Policy()), view, need)
    assert (sum(own), max(own) - min(own) <= 1, len(own)) == (gpus, True, -(-gpus // 8))
    chosen = Registry([Ones(), *builtin_registry().plugins])
    assert replicas_of(chosen.active(Policy(replica_strategy="ones")), view, need) == (1,) * gpus
    wrong = Registry([Ones(more=1), *builtin_registry().plugins])
    assert replicas_of(wrong.active(Policy(replica_strategy="ones")), view, need) == own
    with pytest.raises(PluginFaultError, match=f"divided {gpus} GPUs as"):
        divide_gpus(Ones(more=1), view, need)
