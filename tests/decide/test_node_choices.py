"""Why a node was chosen: every term of its score, and those of the next best nodes."""

from kaiwo.decide.cycle import BUILTIN, decide
from kaiwo.decide.placement.node_choices import OPENED, NodeChoice, NodeChoices
from kaiwo.model.plan import Plan, encode_plan
from kaiwo.model.policy import Policy
from tests.worlds import World


def explained(world: World, policy: Policy | None = None) -> tuple[Plan, dict[str, NodeChoice]]:
    """The plan, which does not depend on the question, and why each pod goes where it goes."""
    choices, policy = NodeChoices(), policy or world.policy
    plan = decide(world.state.fork().snapshot(world.now_s), policy, BUILTIN, (), choices)
    assert encode_plan(plan) == encode_plan(decide(world.state.fork().snapshot(world.now_s), policy, BUILTIN))
    found = {}
    for start in plan.starts:
        workload = world.state.workloads[start.workload]
        choice = choices.of(start, workload.roles[0].request)
        if choice is not None:
            found[f"{start.workload}/{start.pod}"] = choice
    return plan, found


def terms(choice: NodeChoice, node: str) -> dict[str, int]:
    scored = next(each for each in (choice.chosen, *choice.others) if each.node == node)
    assert sum(term.score * term.weight for term in scored.terms) == scored.score
    return {term.name: term.score * term.weight for term in scored.terms}


def half_full() -> World:
    world = World(nodes=3, gpus_per_node=4)
    world.submit("first", gpus_each=2).settle()
    return world


def test_terms_add_up_and_the_best_node_is_chosen() -> None:
    _, found = explained(half_full().submit("second", gpus_each=2))
    choice = found["default/second/main-0"]
    assert (choice.chosen.node, choice.fits) == ("node-0", 3)
    assert [each.node for each in choice.others] == ["node-1", "node-2"]
    assert terms(choice, "node-0")["pack"] > terms(choice, "node-1")["pack"]
    assert choice.chosen.score > choice.others[0].score


def test_weights_of_the_policy_are_those_of_the_terms() -> None:
    policy = Policy(score_weights={"pack": 77})
    _, found = explained(half_full().submit("second", gpus_each=2), policy)
    (pack,) = (term for term in found["default/second/main-0"].chosen.terms if term.name == "pack")
    assert pack.weight == 77


def test_a_gang_that_does_not_start_leaves_nothing_behind() -> None:
    world = half_full().submit("gang", pods=6, gpus_each=2).submit("small", gpus_each=1)
    plan, found = explained(world)
    assert {start.workload for start in plan.starts} == {"default/small"}
    choices = NodeChoices()
    decide(world.state.fork().snapshot(world.now_s), world.policy, BUILTIN, (), choices)
    assert [each.request.gpus for each in choices.made] == [1]
    assert set(found) == {"default/small/main-0"}
    assert OPENED not in {term.name for term in found["default/small/main-0"].chosen.terms}
