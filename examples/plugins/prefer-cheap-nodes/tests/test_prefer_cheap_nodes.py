from prefer_cheap_nodes import Config, PreferCheapNodes

from kaiwo.plugins import Node, Request
from kaiwo.plugins.testing import all_nodes, view_of

PRICE, ERRORS = Config().price_label, Config().errors_label


def scores(*labels: dict[str, str], config: Config = Config()) -> list[int]:  # noqa: B008
    view = view_of([Node(f"node-{at}", labels=each) for at, each in enumerate(labels)])
    return PreferCheapNodes(config).score(view, Request(1_000), all_nodes(view)).tolist()


def test_cheap_nodes_score_higher() -> None:
    assert scores({PRICE: "0"}, {PRICE: "2500"}, {PRICE: "10000"}, {PRICE: "99999"}) == [1000, 750, 0, 0]


def test_a_node_without_a_price_is_in_the_middle() -> None:
    assert scores({}, {PRICE: "cheap"}) == [500, 500]


def test_errors_lower_the_score() -> None:
    assert scores({PRICE: "0", ERRORS: "1"}, {PRICE: "0", ERRORS: "10"}, {ERRORS: "5"}) == [900, 0, 250]


def test_the_labels_can_be_configured() -> None:
    assert scores({"cost": "50"}, config=Config(price_label="cost", most_cents=100)) == [500]
