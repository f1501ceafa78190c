"""The partition benchmark counts what a cluster of fixed modes serves: the same as the cluster itself does."""

import pytest

import bench._partitioning_simulation as world
from bench.partitions import seeds_of, static_cluster, static_splits
from kaiwo.gpus.partitioning.planner_types import PlannerSettings
from kaiwo.gpus.partitioning.rollout import changes_starting


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six hours, with a change of phase in them."""
    monkeypatch.setattr(world, "HOURS", 6)


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_counting_places_is_what_the_shipped_code_does_when_modes_never_change() -> None:
    jobs = world.make_jobs(3)
    splits = static_splits(jobs, 1_800)
    for cpx_nodes in (0, 9, 16):
        served = static_cluster(cpx_nodes, 1_800).run(jobs).served_gpu_s
        assert served == pytest.approx(splits[cpx_nodes], rel=1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_the_planner_never_changes_a_gpu_in_use_and_serves_more_than_any_fixed_split() -> None:
    jobs = world.make_jobs(5)
    cluster = world.Cluster([world.SPX] * world.NODES, PlannerSettings(), 1_800)
    plain = cluster._plan

    def watched(now_s: int) -> None:
        before = cluster.course
        plain(now_s)
        for node, gpu in changes_starting(before, cluster.course):
            held = cluster.state.allocations_on.get(node, {}).values()
            assert not any(share.gpu.split("-p")[0] == gpu for pod in held for share in pod.devices)

    cluster._plan = watched  # type: ignore[method-assign]
    outcome = cluster.run(jobs)
    assert outcome.changes > 50
    assert outcome.served_gpu_s > max(static_splits(jobs, 1_800))


def test_the_offered_load_is_nine_tenths_and_phases_alternate() -> None:
    jobs = [job for seed in range(3) for job in world.make_jobs(seed)]
    total = 3 * world.NODES * world.GPUS * world.HOURS * 3600
    assert sum(job.gpu_s for job in jobs) / total == pytest.approx(0.9, abs=0.05)
    for is_gang, phase in ((False, 0), (True, 1)):
        inside = [job for job in jobs if job.arrives_s // (4 * 3600) % 2 == phase]
        share = sum(job.gpu_s for job in inside if job.is_gang == is_gang) / sum(job.gpu_s for job in inside)
        assert share == pytest.approx(0.9, abs=0.04)


def test_seeds_are_read_as_people_write_them() -> None:
    assert seeds_of("1-3") == [1, 2, 3]
    assert seeds_of("4,7") == [4, 7]
