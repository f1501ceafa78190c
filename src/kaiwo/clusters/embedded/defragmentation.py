"""The defragmentation run of an embedded cluster: asked for, aborted, and how far it is.

Progress is stored in the transaction that stops the pods and keeps their places. So a move was begun with all that
belongs to it or not at all, whenever Kaiwo dies. The last run is kept until the next one.
"""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from kaiwo.clusters.embedded.state import (
    EmbeddedState,
    Transaction,
    drop_defragmentation,
    put_defragmentation,
    put_move_step,
)
from kaiwo.model.defragmentation import DefragmentationRun, RunState, StepProgress, begun_s
from kaiwo.model.errors import NotFoundError, RefusedError
from kaiwo.model.events import DefragmentationChanged
from kaiwo.model.plan import Plan

if TYPE_CHECKING:
    from kaiwo.clusters.embedded.state import TransactionRunner

HOUR_S = 3600


class EmbeddedMoves:
    """The `MoveControl` of an embedded cluster."""

    def __init__(self, runner: "TransactionRunner") -> None:
        self._runner = runner

    def current(self) -> DefragmentationRun | None:
        return current_run(self._runner.state)

    async def start(self, run: DefragmentationRun, who: str = "") -> DefragmentationRun:
        def act(transaction: Transaction) -> DefragmentationRun:
            before = current_run(transaction.state)
            if before is not None and not before.is_over:
                raise RefusedError(f"run {before.name} is not over; wait for it, or abort it with: kaiwo defrag abort")
            recent: list[int] = []
            if before is not None:
                steps = _steps_of(transaction.state, before)
                recent = [at_s for at_s in (*before.recent_s, *begun_s(steps)) if at_s > transaction.now_s - HOUR_S]
                drop_defragmentation(transaction, before.name)
            begun = replace(run, by=who, begun_s=transaction.now_s, recent_s=tuple(sorted(recent)))
            put_defragmentation(transaction, begun)
            transaction.events.append(DefragmentationChanged(begun))
            return begun

        return await self._runner.transact(act)

    async def abort(self, who: str = "") -> DefragmentationRun:
        def act(transaction: Transaction) -> DefragmentationRun:
            run = current_run(transaction.state)
            if run is None or run.is_over:
                raise NotFoundError("no defragmentation is running; kaiwo defrag status shows the last one")
            aborting = replace(run, state=RunState.ABORTING)
            put_defragmentation(transaction, aborting)
            transaction.events.append(DefragmentationChanged(aborting))
            return aborting

        return await self._runner.transact(act)


def current_run(state: EmbeddedState) -> DefragmentationRun | None:
    return next(iter(state.defragmentation.values()), None)


def record_moves(transaction: Transaction, plan: Plan) -> None:
    """Store how far the run is. The scheduler decided it, so it needs no event."""
    run = current_run(transaction.state)
    if run is None:
        return
    for step in plan.move_steps:
        if step.run == run.name:
            put_move_step(transaction, step)
    if plan.moves_over == run.name:
        put_defragmentation(transaction, run.ended(transaction.now_s))


def _steps_of(state: EmbeddedState, run: DefragmentationRun) -> list[StepProgress]:
    return [each for each in state.move_steps.values() if each.run == run.name]
