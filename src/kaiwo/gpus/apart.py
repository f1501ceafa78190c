"""Keep a demanded grade when neighbours come: who demands one shares a device only with those who have limits, too.

In:    the view, a request for a share, rows of nodes.   Out: the devices that are closed to it; None: none is.
Both ways: a share that would have no limit does not come to a tenant who demands one, nor such a tenant to it.
"""

import numpy as np

from kaiwo.gpus.isolation import grade_of, least_milli
from kaiwo.model.isolation import DEMANDS, LIMITED, TURNS, meets
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod
from kaiwo.snapshot.arrays import BoolArray, Rows
from kaiwo.snapshot.working import Working


def closed_by_tenants(view: Working, want: Request, nodes: Rows) -> BoolArray | None:
    """Devices whose tenants and this share would not be kept apart as somebody demands."""
    tenancy = view.tenancy
    if want.beside == DEMANDS:
        places = [(row, column) for row, column, milli in tenancy.small if _is_unlimited(view, row, column, milli)]
    else:
        places = [place for place in tenancy.demanding if not _gets_limits(view, want, *place)]
    if not places:
        return None
    closed = np.zeros((len(view.nodes.names), view.nodes.width), np.bool_)
    closed[tuple(np.array(places).T)] = True
    return closed[nodes]


def may_come_back(view: Working, pod: Pod, row: int) -> bool:
    """A pod that is not on the books just now finds nobody on its devices who must be apart from it."""
    tenancy, columns = view.tenancy, view.nodes.column[row]
    places = [(columns[share.gpu], share.milli) for share in pod.devices if share.gpu in columns]
    if pod.beside == DEMANDS:
        mine = {column for column, _ in places}
        there = (each for each in tenancy.small if each[0] == row and each[1] in mine)
        return not any(_is_unlimited(view, *each) for each in there)
    return not any(
        (row, column) in tenancy.demanding and _is_unlimited(view, row, column, 0 if pod.beside == TURNS else milli)
        for column, milli in places
    )


def _is_unlimited(view: Working, row: int, column: int, milli: int) -> bool:
    return milli == 0 or milli < least_milli(view.nodes.nodes[row].gpus[column].model)


def _gets_limits(view: Working, want: Request, row: int, column: int) -> bool:
    node = view.nodes.nodes[row]
    grade = grade_of(want, node.gpus[column], node.labels)
    return bool(grade) and meets(grade, LIMITED)
