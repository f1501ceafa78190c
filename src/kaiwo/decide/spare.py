"""What a running workload can spare: pods that may go while the rest goes on.

In:    a workload and its running pods.   Out: pieces to spare, the first to go first, and the pods that it needs.
A sub-group that is not needed goes as a whole, the last one first; before all others one that is not whole any more.
Who leads is spared last.
"""

from collections.abc import Iterable, Mapping

from kaiwo.model.subgroup import Branch, is_branch_whole, tree_of
from kaiwo.model.workload import Pod, Workload, leaders_of, pod_name, pods_up

Pieces = list[tuple[Pod, ...]]


def spare_of(workload: Workload, running: Mapping[str, Pod]) -> tuple[Pieces, list[Pod]]:
    """The pieces that it can spare, and what is left of it then."""
    spare: Pieces = []
    if workload.groups:
        up = pods_up(workload, running)
        _spare_branches(workload, running, tree_of(workload.groups, workload.roles), up, spare)
    else:
        for number in range(len(workload.roles)):
            spare += _spare_pods(workload, running, number)
    spare.sort(key=lambda piece: is_led_by(workload, piece))
    gone = {pod.name for piece in spare for pod in piece}
    return spare, [running[name] for name in sorted(running) if name not in gone]


def is_led_by(workload: Workload, piece: Iterable[Pod]) -> bool:
    """Somebody who leads is among them."""
    leaders = leaders_of(workload)
    return bool(leaders) and any(pod.name.rpartition("-")[0] in leaders for pod in piece)


def _spare_pods(workload: Workload, running: Mapping[str, Pod], number: int) -> Pieces:
    pods = _pods_of(workload, running, number)
    return [(pod,) for pod in reversed(pods[workload.roles[number].needed :])]


def _spare_branches(
    workload: Workload, running: Mapping[str, Pod], branch: Branch, up: list[int], spare: Pieces
) -> None:
    whole = [child for child in branch.children if is_branch_whole(child, workload.roles, up)]
    broken = [child for child in branch.children if child not in whole]
    whole.sort(key=lambda child: not _leads(workload, child))
    needed, others = whole[: branch.minimum], whole[branch.minimum :]
    if len(whole) < branch.minimum:
        needed, broken = [*whole, *broken], []  # it is not whole itself: nobody can say who is missed least
    for number in branch.extras:
        spare += _spare_pods(workload, running, number)
    for child in (*reversed(broken), *reversed(others)):
        if pods := _all_pods(workload, running, child):
            spare.append(tuple(pods))
    for child in reversed(needed):
        if isinstance(child, int):
            spare += _spare_pods(workload, running, child)
        else:
            _spare_branches(workload, running, child, up, spare)


def _leads(workload: Workload, branch: Branch | int) -> bool:
    if isinstance(branch, int):
        return workload.roles[branch].leads
    return any(_leads(workload, child) for child in (*branch.children, *branch.extras))


def _all_pods(workload: Workload, running: Mapping[str, Pod], branch: Branch | int) -> list[Pod]:
    if isinstance(branch, int):
        return _pods_of(workload, running, branch)
    return [pod for child in (*branch.children, *branch.extras) for pod in _all_pods(workload, running, child)]


def _pods_of(workload: Workload, running: Mapping[str, Pod], number: int) -> list[Pod]:
    role = workload.roles[number]
    return [running[name] for index in range(role.count) if (name := pod_name(role, index)) in running]
