"""Who leads: the replica that holds the Lease, or the only replica that there is."""

import asyncio
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kaiwo.clusters.kubernetes.leader_election import LeaderElection


class SingleReplica:
    """Stands in for an election: this replica always leads."""

    is_held, left_s, identity, holder, term, transitions = True, float("inf"), "", "", 1, 0

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def step(self) -> None: ...

    async def won(self) -> int:
        return self.term

    async def lost(self, term: int) -> None:
        await asyncio.Event().wait()

    def stop(self) -> None: ...

    async def release(self) -> None: ...

    async def close(self) -> None: ...


SINGLE_REPLICA = SingleReplica()
Leadership: TypeAlias = "LeaderElection | SingleReplica"
