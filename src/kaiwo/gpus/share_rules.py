"""Which devices rules about who may share a GPU close to a request, and where its own pods may not share one."""

import numpy as np

from kaiwo.gpus.isolation_grades import closed_by_tenants, tenants_allow_return
from kaiwo.model.gpus.gpu import may_share
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod
from kaiwo.snapshot.array_types import BoolArray, Rows
from kaiwo.snapshot.view import View


def closed_devices(view: View, want: Request, nodes: Rows) -> BoolArray | None:
    """Devices that isolation or rules about sharing close to this share; None: there are none."""
    by_isolation, by_rules = closed_by_tenants(view, want, nodes), closed_by_rules(view, want, nodes)
    if by_isolation is None or by_rules is None:
        return by_isolation if by_rules is None else by_rules
    closed: BoolArray = by_isolation | by_rules
    return closed


def closed_by_rules(view: View, want: Request, nodes: Rows) -> BoolArray | None:
    """Devices with tenants that may not share with this one; None: no rule is in use."""
    closed_to, rules = view.tenants.closed_to, view.nodes.share_rules
    if want.tenant is None or closed_to is None:
        return None
    if len(rules) == 1:
        return closed_to(want.tenant, rules[0], nodes)
    closed = np.zeros((len(nodes), view.nodes.width), np.bool_)
    numbers = view.nodes.share_rule[nodes]
    for number in np.unique(numbers).tolist():
        at = (numbers == number).nonzero()[0]
        closed[at] = closed_to(want.tenant, rules[number], nodes[at])
    return closed


def one_per_device(view: View, want: Request, nodes: Rows) -> BoolArray | None:
    """Nodes where two pods with this request may not share a device; None: they may everywhere."""
    if (tenant := want.tenant) is None:
        return None
    is_alone = np.array([not may_share(tenant, tenant, rule) for rule in view.nodes.share_rules], np.bool_)
    return is_alone[view.nodes.share_rule[nodes]] if is_alone.any() else None


def may_share_again(view: View, pod: Pod, row: int) -> bool:
    """True if an evicted pod may return beside the tenants that its devices have now."""
    if not tenants_allow_return(view, pod, row):
        return False
    tenant, closed_to = view.tenant_of(pod), view.tenants.closed_to
    if tenant is None or closed_to is None:
        return True
    rule, column = view.nodes.share_rules[view.nodes.share_rule[row]], view.nodes.column[row]
    closed = closed_to(tenant, rule, np.array([row]))[0]
    return not any(share.gpu in column and closed[column[share.gpu]] for share in pod.devices)
