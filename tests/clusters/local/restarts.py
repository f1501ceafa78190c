"""A local cluster that is opened again after a restart of Kaiwo."""

from collections.abc import Sequence
from pathlib import Path

from kaiwo.clusters.local import LocalCluster
from kaiwo.model.events import Event
from tests.clusters.kinds import some_nodes


def opened(home: Path) -> LocalCluster:
    return LocalCluster(home, some_nodes(2), speed=1000.0, grace_s=1.0)


async def first_events(home: Path) -> Sequence[Event]:
    """The first batch of a new process: all that it knows."""
    cluster = opened(home)
    try:
        async for batch in cluster.events():
            return batch
        raise AssertionError("there was no first batch")
    finally:
        await cluster.close()
