"""The least raise of one limit or quota that would start a workload.

In:    a Question.   Out: raises worth a try, the least first; None where others that are not listed may help.
A bound that leaves less than the workload's least charge must be raised. Where none does, any may be in its way: one of
a GPU model, or one at the charge of smaller devices.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kaiwo.decide.cycle import Fate
from kaiwo.decide.placement.queue_limits import least_by_model, least_charge
from kaiwo.explain.placement_check import PlacementCheck
from kaiwo.explain.possible_changes import ChangeKind, PossibleChange, bound_name, highest_raise
from kaiwo.explain.verify_change import Question
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.workload import Workload, role_of
from kaiwo.snapshot.backlog import RoleNeeds, needs_of_each_choice
from kaiwo.snapshot.queue_table import ResourceVector


class Bound(NamedTuple):
    """A limit or a quota that a workload's queue, or one above it, has."""

    queue: str
    column: int  # a resource, or after those a GPU model
    word: str  # limit | quota: work that may not be preempted stays within both
    left: int

    def raised(self, question: Question, by: int) -> PossibleChange:
        """The change that leaves more."""
        subject = bound_name(question.state, self.queue, self.column, self.word)
        return PossibleChange(ChangeKind.QUOTA, "admin", subject, by, by)


def quota_raises(question: Question, check: PlacementCheck, most_cost: int) -> Iterator[PossibleChange | None]:
    """For every bound that may be in its way, the least raise that starts it; the cheapest first."""
    if not check.fits_on_nodes(question.workload):
        return  # a raise brings no room
    charges = _charges(question, check)
    bounds = _bounds(question)
    must = [bound for bound in bounds if charges[0][bound.column] > bound.left]
    if len(must) > 1:
        return  # one raise alone never helps
    found: list[PossibleChange] = []
    spent_at = question.cost + most_cost
    for bound in must or [bound for bound in bounds if charges[-1][bound.column] > bound.left]:
        search = _Search(question, bound, sorted({charge[bound.column] for charge in charges}), spent_at)
        least = search.least()
        if least is not None:
            found.append(least)
        if search.gave_up:
            yield None
    yield from sorted(found, key=lambda change: change.rank)


def only_needed_raise(question: Question, check: PlacementCheck) -> tuple[PossibleChange, ResourceVector] | None:
    """Where exactly one bound leaves less than the least charge: the raise that leaves as much, and that charge."""
    least = _charges(question, check)[0]
    must = [bound for bound in _bounds(question) if least[bound.column] > bound.left]
    if len(must) != 1:
        return None
    change = must[0].raised(question, least[must[0].column] - must[0].left)
    is_possible = change.value <= highest_raise(question.state, change.subject, must[0].left)
    return (change, least) if is_possible else None


class _Search:
    """For the least raise of one bound after which `decide` starts the workload."""

    def __init__(self, question: Question, bound: Bound, pays: list[int], spent_at: int) -> None:
        self._question, self._bound, self._pays, self._spent_at = question, bound, pays, spent_at
        self.gave_up = False

    def least(self) -> PossibleChange | None:
        """First the raise for its least charge and for what starts before it; then steps in between."""
        question, bound = self._question, self._bound
        low = max(0, self._pays[0] - bound.left - 1)
        top = highest_raise(question.state, bound.raised(question, 0).subject, bound.left)
        if top <= low:
            return None
        if len(self._pays) == 1 and low and self._has_fixed_order():
            taken = _taken(question, bound, self._outcome(top))
            if all(each <= self._pays[0] for each in taken.values()):
                # They start under every bound that leaves enough for it, since each of them takes no more than it does.
                change = bound.raised(question, low + 1 + sum(taken.values()))
                return change if self._outcome(top).is_started else None
        by = self._between(low, top)
        return None if by is None else bound.raised(question, by)

    def _between(self, low: int, high: int) -> int | None:
        """The least raise above `low` that starts it, up to `high`; `low` does not.

        As the bound is raised, the workloads before it start one after the other, and their queues' shares, which
        decide whose turn it is, move one way. So where both ends of a span look the same, everything between does.
        """
        if self._is_like(low, high):
            return None
        if high - low == 1:
            return high if self._outcome(high).is_started else None
        if self._question.cost > self._spent_at:
            self.gave_up = True
            return None
        middle = self._middle(low, high)
        below = self._between(low, middle)
        return below if below is not None or self.gave_up else self._between(middle, high)

    def _is_like(self, low: int, high: int) -> bool:
        one, other = self._outcome(low), self._outcome(high)
        return not other.is_started and one.starts == other.starts

    def _middle(self, low: int, high: int) -> int:
        """Its charge plus what was taken at `low` is the likeliest step, and one less seldom does; else the middle."""
        taken = sum(_taken(self._question, self._bound, self._outcome(low)).values())
        steps = [pay - self._bound.left + taken for pay in self._pays]
        likely = [*steps, *(by - 1 for by in steps)]
        return next((by for by in likely if low < by < high and not self._is_tried(by)), (low + high) // 2)

    def _is_tried(self, by: int) -> bool:
        return self._question.is_tried(self._bound.raised(self._question, by))

    def _outcome(self, by: int) -> Fate:
        return self._question.outcome_after(self._bound.raised(self._question, by))

    def _has_fixed_order(self) -> bool:
        """All who use the bound wait in one queue, so with a higher bound they never use less of it.

        Whatever starts that a lower bound forbade needs, alone, more than the lower bound had left.
        """
        return self._bound.queue == self._question.workload.queue and not self._question.state.releasing


def _charges(question: Question, check: PlacementCheck) -> list[ResourceVector]:
    """What it may be charged, the least first and the most last; each choice of sub-groups has its own."""
    found = question.state.backlog.find(question.name)[0]
    ways = needs_of_each_choice(found)
    if not ways:
        return _charges_of(question, check, found.needs)
    every = [charge for needs in ways for charge in _charges_of(question, check, needs)]
    columns = list(zip(*every, strict=True))
    return [tuple(map(min, columns)), *every, tuple(map(max, columns))]


def _charges_of(question: Question, check: PlacementCheck, needs: RoleNeeds) -> list[ResourceVector]:
    """The same memory is a smaller part of a larger device. After the resources comes its use of each bounded model."""
    state = question.state
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


def _taken(question: Question, bound: Bound, outcome: Fate) -> dict[str, int]:
    """What workloads that started before it used of the bound."""
    state, view = question.state, question.view
    row = state.queues.row[bound.queue]
    taken: dict[str, int] = {}
    for start in outcome.starts:
        workload = state.workloads[start.workload]
        if workload.name == question.name:
            break  # the rest of this list starts after it
        if row not in state.queues.path[state.queues.row[workload.queue]]:
            continue
        if bound.word == "quota" and workload.preemptible:
            continue
        charge = _charge_of(workload, start.pod, sum(share.milli for share in start.devices))
        charge += view.milli_by_model(start.node, start.devices)
        taken[workload.name] = taken.get(workload.name, 0) + charge[bound.column]
    return taken


def _charge_of(workload: Workload, pod: str, milli: int) -> ResourceVector:
    ask = role_of(workload, pod).request
    return milli, ask.cpu_milli, ask.memory_mib


def _bounds(question: Question) -> list[Bound]:
    """Every bound on the path that the workload has to keep."""
    view, queues = question.view, question.view.queues
    row = queues.row.get(question.workload.queue)
    if row is None:
        return []
    kept = [("limit", queues.limits[row], view.all_used)]
    if not question.workload.preemptible:
        kept.append(("quota", queues.quotas[row], view.all_non_preemptible))
    return [
        Bound(queues.names[above], column, word, most - int(used[above, column]))
        for word, bounds, used in kept
        for above, column, most in bounds
    ]
