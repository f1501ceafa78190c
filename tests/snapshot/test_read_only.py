"""Plugins and searches look at arrays that they cannot write to."""

import numpy as np
import pytest

from kaiwo.snapshot.array_types import freeze, read_only
from kaiwo.snapshot.working_copy import WorkingCopy, start_view
from tests.worlds import World


def test_a_frozen_array_and_a_read_only_view_refuse_to_be_written() -> None:
    array = np.zeros(2, np.int64)
    seen = read_only(array)
    with pytest.raises(ValueError, match="read-only"):
        seen[0] = 1
    array[1] = 7  # the owner still may, and it is the same memory
    assert seen.tolist() == [0, 7]
    freeze(array)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@pytest.mark.parametrize("name", ["free", "gpus", "gpu_model", "gpu_total", "schedulable"])
def test_the_nodes_of_a_view_cannot_be_written(name: str) -> None:
    view = WorkingCopy(World().snapshot()).view
    with pytest.raises(ValueError, match="read-only"):
        getattr(view.nodes, name)[0] = 1


@pytest.mark.parametrize("name", ["free", "gpus", "changed", "all_used", "all_non_preemptible"])
def test_the_state_cannot_be_written_through_the_view_that_shares_its_arrays(name: str) -> None:
    world = World()
    view = start_view(world.snapshot())
    of_nodes = name in ("free", "gpus", "changed")
    assert np.shares_memory(getattr(view, name), getattr(world.state.nodes if of_nodes else world.state.queues, name))
    with pytest.raises(ValueError, match="read-only"):
        getattr(view, name)[0] = 1


@pytest.mark.parametrize("name", ["all_used", "all_non_preemptible", "quota", "limit", "priority"])
def test_the_queues_of_a_view_cannot_be_written(name: str) -> None:
    view = WorkingCopy(World().snapshot()).view
    with pytest.raises(ValueError, match="read-only"):
        getattr(view.queues, name)[0] = 1
