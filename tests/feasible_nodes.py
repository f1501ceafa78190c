"""The nodes on which one pod could start now, without deciding anything.

In:    a Snapshot and a request.   Out: names of nodes, sorted.
The same capacity, filters and rules between pods that every placement goes through.
"""

from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.placement.shape_scores import ShapeScores
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.request import Request
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working_copy import WorkingCopy


def feasible_nodes(
    snapshot: Snapshot, want: Request, policy: Policy = DEFAULT_POLICY, plugins: Registry = BUILTIN
) -> tuple[str, ...]:
    """Whatever its queue may take."""
    working = WorkingCopy(snapshot)
    book = ShapeScores(snapshot.read(), WorkingCopy(snapshot).view, working, plugins.active(policy))
    slots = book.state_of(want).slots
    return tuple(name for name, count in zip(working.nodes.names, slots.tolist(), strict=True) if count > 0)
