import numpy as np
from licences import Config, Licences

from kaiwo.plugins import Node, Policy, Request, VictimTable
from kaiwo.plugins.testing import all_nodes, view_of

LABEL, RESOURCE = Config().maintenance_label, Config().resource


def test_there_are_as_many_licences_as_were_bought() -> None:
    assert Licences(Config(seats=20)).resource((Node("a"),)).floating == {RESOURCE: 20}


def test_licensed_work_stays_off_nodes_in_maintenance_and_other_work_does_not() -> None:
    view = view_of([Node("a", extended={RESOURCE: 2}), Node("b", extended={RESOURCE: 2}, labels={LABEL: "true"})])
    licensed, other = Request(1_000, extended=((RESOURCE, 1),)), Request(1_000)
    assert Licences().filter(view, licensed, all_nodes(view)).tolist() == [True, False]
    assert Licences().filter(view, other, all_nodes(view)).tolist() == [True, True]


def test_work_of_owners_is_not_stopped() -> None:
    zeros = np.zeros(2, np.int64)
    victims = VictimTable(("a/x", "a/y"), ("cad", "lab"), zeros, zeros, zeros, zeros, zeros, zeros.astype(np.bool_))
    plugin = Licences(Config(owners=("cad",)))
    assert plugin.victim_filter(view_of([]), victims, Policy()).tolist() == [False, True]
