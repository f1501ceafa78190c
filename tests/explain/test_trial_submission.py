"""What a dry run says about the node that it would choose."""

from kaiwo.decide.placement.node_choices import NodeChoice, ScoredNode, ScoreTerm
from kaiwo.explain.trial_submission import choice_sentence, score_words
from kaiwo.model.request import Request


def scored(node: str, pack: int) -> ScoredNode:
    return ScoredNode(node, pack * 10, (ScoreTerm("pack", pack, 10), ScoreTerm("steady-nodes", 0, 20)))


def choice(*nodes: ScoredNode, by_domain: bool = False) -> NodeChoice:
    return NodeChoice(Request(gpus=1), nodes[0], nodes[1:], len(nodes), by_domain)


def test_the_terms_of_the_chosen_and_the_next_best_node_are_told() -> None:
    assert choice_sentence(choice(scored("a", 500), scored("b", 250))) == (
        "a is the best of 2 nodes with room: 5,000 = pack 500 x 10; next: b with 2,500 = pack 250 x 10"
    )


def test_what_precedes_all_scores_is_told_as_such() -> None:
    before = ScoreTerm("displaced-work", -3, 1 << 32), ScoreTerm("unused-domains", -1, 1 << 28)
    words = score_words(ScoredNode("a", 0, (ScoreTerm("pack", 500, 10), *before)))
    assert words == "displaced-work -3, then unused-domains -1, then 5,000 = pack 500 x 10"


def test_among_equal_nodes_the_name_decides() -> None:
    assert choice_sentence(choice(scored("a", 0), scored("b", 0))) == (
        "a is the best of 2 nodes with room: 0; b is as good, and the first name wins"
    )


def test_the_only_node_with_room_needs_no_reason() -> None:
    assert choice_sentence(choice(scored("a", 500))) == ""


def test_a_domain_that_was_chosen_first_is_told() -> None:
    words = choice_sentence(choice(scored("a", 100), scored("b", 500), by_domain=True))
    assert words == "a is in the domain that was chosen first; it scores 1,000 = pack 100 x 10"
