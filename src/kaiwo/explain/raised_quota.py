"""Find the least raise of one limit or quota that would start a workload.

A bound that leaves less than the workload's least charge must be raised. Where none does, any may be in its way: one
of a GPU model, or one that only the higher charge on smaller devices exceeds.
"""

from collections.abc import Callable, Iterator

from kaiwo.decide.cycle import TrialOutcome
from kaiwo.decide.placement.queue_limits import UsageBound, bounds_on, least_by_model, least_charge
from kaiwo.explain.placement_check import PlacementCheck
from kaiwo.explain.possible_changes import ChangeKind, PossibleChange, QueueBoundRef, highest_raise
from kaiwo.explain.verify_change import WhatIf
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.workload import role_of
from kaiwo.snapshot.backlog import RoleNeeds, needs_of_each_choice
from kaiwo.snapshot.queue_table import RESOURCES, ResourceVector


def quota_raises(what_if: WhatIf, check: PlacementCheck, most_cost: int) -> Iterator[PossibleChange | None]:
    """The least raise of each bound that may be in its way; the cheapest first."""
    if not check.fits_on_nodes(what_if.workload):
        return  # a raise brings no room
    charges = _charges(what_if, check)
    bounds = _bounds(what_if)
    must = [bound for bound in bounds if charges[0][bound.column] > bound.left]
    if len(must) > 1:
        return  # one raise alone never helps
    found: list[PossibleChange] = []
    spent_at = what_if.cost + most_cost
    for bound in must or [bound for bound in bounds if charges[-1][bound.column] > bound.left]:
        search = _Search(what_if, bound, sorted({charge[bound.column] for charge in charges}), spent_at)
        least = search.least()
        if least is not None:
            found.append(least)
        if search.gave_up:
            yield None
    yield from sorted(found, key=lambda change: change.rank)


def only_needed_raise(what_if: WhatIf, check: PlacementCheck) -> tuple[PossibleChange, ResourceVector] | None:
    """If exactly one bound leaves less than the least charge: its raise to that charge, and the charge."""
    least = _charges(what_if, check)[0]
    must = [bound for bound in _bounds(what_if) if least[bound.column] > bound.left]
    if len(must) != 1:
        return None
    change = _raised(what_if, must[0], least[must[0].column] - must[0].left)
    is_possible = change.value <= highest_raise(what_if.state, _bound_ref(what_if, must[0]), must[0].left)
    return (change, least) if is_possible else None


class _Search:
    """Finds the least raise of one bound after which `decide` starts the workload."""

    def __init__(self, what_if: WhatIf, bound: UsageBound, pays: list[int], spent_at: int) -> None:
        self._what_if, self._bound, self._pays, self._spent_at = what_if, bound, pays, spent_at
        self.gave_up = False

    def least(self) -> PossibleChange | None:
        """First the raise for its least charge and for what starts before it; then steps in between."""
        what_if, bound = self._what_if, self._bound
        low = max(0, self._pays[0] - bound.left - 1)
        top = highest_raise(what_if.state, _bound_ref(what_if, bound), bound.left)
        if top <= low:
            return None
        if len(self._pays) == 1 and low and self._has_fixed_order():
            taken = _taken(what_if, bound, self._outcome(top))
            if all(each <= self._pays[0] for each in taken.values()):
                # They start under every bound that leaves enough for it, since each of them takes no more than it does.
                change = _raised(what_if, bound, low + 1 + sum(taken.values()))
                return change if self._outcome(top).is_started else None
        by = self._between(low, top)
        return None if by is None else _raised(what_if, bound, by)

    def _between(self, low: int, high: int) -> int | None:
        """The least raise above `low` that starts it, up to `high`; `low` does not.

        As the bound is raised, the workloads before it start one after the other, and their queues' shares, which
        decide whose turn it is, move one way. So where both ends of a span look the same, everything between does.
        """
        lower, upper = self._outcome(low), self._outcome(high)
        if not upper.is_started and lower.starts == upper.starts:
            return None
        if high - low == 1:
            return high if upper.is_started else None
        if self._what_if.cost > self._spent_at:
            self.gave_up = True
            return None
        middle = self._middle(low, high)
        below = self._between(low, middle)
        return below if below is not None or self.gave_up else self._between(middle, high)

    def _middle(self, low: int, high: int) -> int:
        """Its charge plus what was taken at `low` is the likeliest step, and one less seldom does; else the middle."""
        taken = sum(_taken(self._what_if, self._bound, self._outcome(low)).values())
        steps = [pay - self._bound.left + taken for pay in self._pays]
        likely = [*steps, *(by - 1 for by in steps)]
        return next((by for by in likely if low < by < high and not self._is_tried(by)), (low + high) // 2)

    def _is_tried(self, by: int) -> bool:
        return self._what_if.is_tried(_raised(self._what_if, self._bound, by))

    def _outcome(self, by: int) -> TrialOutcome:
        return self._what_if.outcome_after(_raised(self._what_if, self._bound, by))

    def _has_fixed_order(self) -> bool:
        """All work under the bound waits in one queue, so with a higher bound it never uses less of it.

        Whatever starts that a lower bound forbade needs, alone, more than the lower bound had left.
        """
        queue = self._what_if.view.queues.names[self._bound.queue]
        return queue == self._what_if.workload.queue and not self._what_if.state.releasing


def _charges(what_if: WhatIf, check: PlacementCheck) -> list[ResourceVector]:
    """What it may be charged, the least first and the most last; each choice of sub-groups has its own."""
    found = what_if.state.backlog.class_of(what_if.name)
    ways = needs_of_each_choice(found)
    if not ways:
        return _charges_of(what_if, check, found.needs)
    every = [charge for needs in ways for charge in _charges_of(what_if, check, needs)]
    columns = list(zip(*every, strict=True))
    return [tuple(map(min, columns)), *every, tuple(map(max, columns))]


def _charges_of(what_if: WhatIf, check: PlacementCheck, needs: RoleNeeds) -> list[ResourceVector]:
    """Memory is a smaller part of a larger device. After the resources comes the use of each bounded model."""
    state = what_if.state
    wants = [(state.backlog.shapes[shape], needed) for shape, _, needed in needs]
    sizes = sorted({size for want, _ in wants if want.is_memory for size in check.sizes_with_room(want)})
    prices: list[Callable[[int], int]] = [lambda _, size=size: size for size in reversed(sizes or [0])]  # type: ignore[misc]
    by_model = least_by_model(state, needs)
    charges = [(*least_charge(state, needs, price), *by_model) for price in prices]
    gpu, cpu, memory = least_charge(state, needs, prices[-1])
    dearer = [(want.gpus * WHOLE_MILLI - want.charge_milli, needed) for want, needed in wants if want.is_partition]
    gpu += sum(max(1, needed) * milli for milli, needed in dearer)
    most = (gpu, cpu, memory, *(max(each, gpu) for each in by_model))
    return charges if most == charges[-1] else [*charges, most]


def _raised(what_if: WhatIf, bound: UsageBound, by: int) -> PossibleChange:
    return PossibleChange(ChangeKind.QUOTA, "admin", _bound_ref(what_if, bound), by, by)


def _bound_ref(what_if: WhatIf, bound: UsageBound) -> QueueBoundRef:
    """The resources are followed by the models with bounds of their own."""
    state, queue, at = what_if.state, what_if.view.queues.names[bound.queue], bound.column - len(RESOURCES)
    resource, model = (RESOURCES[bound.column], "") if at < 0 else ("gpu", state.queues.models[at])
    return QueueBoundRef(queue, resource, model, "quota" if bound.is_quota else "limit")


def _taken(what_if: WhatIf, bound: UsageBound, outcome: TrialOutcome) -> dict[str, int]:
    """By workload that started before it: what that used of the bound."""
    state, view = what_if.state, what_if.view
    taken: dict[str, int] = {}
    for start in outcome.starts:
        workload = state.workloads[start.workload]
        if workload.name == what_if.name:
            break  # the rest of this list starts after it
        if bound.queue not in view.queues.path[view.queues.row[workload.queue]]:
            continue
        if bound.is_quota and workload.preemptible:
            continue
        milli, want = sum(share.charge_milli for share in start.devices), role_of(workload, start.pod).request
        models = view.milli_by_model(start.node, start.devices)
        charge = (milli, want.cpu_milli, want.memory_mib, *models)
        taken[workload.name] = taken.get(workload.name, 0) + charge[bound.column]
    return taken


def _bounds(what_if: WhatIf) -> list[UsageBound]:
    row = what_if.view.queues.row.get(what_if.workload.queue)
    return [] if row is None else bounds_on(what_if.view, row, not what_if.workload.preemptible)
