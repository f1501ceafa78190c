"""Advice for a cluster whose work comes and goes with kubectl, and what its rules and its labels keep from starting."""

import pytest

from kaiwo.explain import propose_in_kubernetes, remedy_in_kubernetes, why
from kaiwo.explain.change_sentences import REPLACE, Proposal
from kaiwo.explain.possible_changes import ChangeKind, QueueBoundRef
from kaiwo.model.affinity import VENDOR_LABEL, NodeRule, PodAffinity, TopologySpread
from kaiwo.model.node import Taint
from kaiwo.model.obstacle import NodesExcluded, Obstacle, Reason
from kaiwo.model.request import Request
from tests.worlds import World

CORDON = Taint("node.kubernetes.io/unschedulable")
REFUSED = ("kaiwo cancel", "kaiwo submit", "kaiwo apply", "--")  # there


def told(world: World, name: str) -> list[str]:
    world.settle()
    found = why(world.state, f"default/{name}", world.policy, world.now_s).obstacles
    return [each.sentence for each in found]


@pytest.mark.parametrize("kind", ChangeKind)
def test_no_advice_names_a_command_that_is_refused(kind: ChangeKind) -> None:
    subject = QueueBoundRef("lab", "gpu", "", "limit") if kind is ChangeKind.QUOTA else "lab"
    found = propose_in_kubernetes(Proposal(kind, "researcher", "do this", "kaiwo cancel x", subject))
    assert not any(word in f"{found.sentence} {found.command.replace(REPLACE, '')}" for word in REFUSED)


def test_what_to_stop_is_told_with_the_line_that_stops_it() -> None:
    stop = Proposal(ChangeKind.STOP, "admin", "stop old, which is running now", "kaiwo cancel old", "default/old")
    line = "kubectl -n default delete job.batch old"
    found = propose_in_kubernetes(stop, line)
    assert (found.sentence, found.command) == (stop.sentence, line)
    unknown = propose_in_kubernetes(stop)
    assert (unknown.command, "with kubectl" in unknown.sentence) == ("", True)


@pytest.mark.parametrize("reason", Reason)
def test_no_remedy_names_a_command_that_is_refused(reason: Reason) -> None:
    held_here = (Reason.HELD, Reason.DEPENDENCY, Reason.DEPENDENCY_FAILED)  # nobody can ask for these with kubectl
    if reason not in held_here:
        words = remedy_in_kubernetes(Obstacle(reason, 2, 1, "pods", "lab", NodesExcluded(1, 2)))
        assert not any(word in words for word in REFUSED)


def test_gpus_of_a_vendor_that_nobody_has_are_no_matter_of_node_selectors() -> None:
    rule = NodeRule(f"{VENDOR_LABEL}nvidia", "Exists")
    world = World(nodes=2).submit("new", request=Request(gpus=1, node_rules=(rule,)))
    assert told(world, "new") == ["it asks for nvidia.com/gpu, but none of the 2 nodes has a GPU from nvidia"]


def test_the_cordon_of_the_only_node_that_matches_is_named() -> None:
    world = World(nodes=2).node("mine", labels={"rack": "7"}, cordoned=True, taints=(CORDON,))
    world.submit("new", request=Request(gpus=1, node_rules=(NodeRule("rack", "In", ("7",)),)))
    assert told(world, "new")[0] == "1 of 3 nodes is cordoned"
    assert not any("taint" in each for each in told(world, "new"))


def test_a_gang_larger_than_the_cluster_is_not_told_to_wait() -> None:
    world = World(nodes=6).running("old", gpus=8).submit("big", pods=7, gpus_each=8)
    world.settle()
    found = why(world.state, "default/big", world.policy, world.now_s).obstacles[0]
    assert found.sentence == "its 7 pods must start together, but even an empty cluster has GPUs for only 6"
    assert found.remedy == "ask for 6 pods or fewer, or add nodes; waiting does not help"


def test_a_spread_over_a_label_that_no_node_has_says_so() -> None:
    spread = PodAffinity(("app",), spread=(TopologySpread("app", "example.com/row", 1),))
    world = World(nodes=2).submit("new", request=Request(gpus=1, neighbours=spread))
    assert told(world, "new") == ["its pods must be spread over the label example.com/row, but no node has that label"]
