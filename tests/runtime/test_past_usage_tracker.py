"""Past use: kept over time and restarts, and it decides who has more of the rest."""

from pathlib import Path

import msgspec
from msgspec import Raw

from kaiwo.clusters.kubernetes.cache.queue_history import WHOLE, QueueHistory, read_queue_status
from kaiwo.model.events import QueueChanged
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Queue
from kaiwo.queues.current_shares import fair_shares_of, queue_demand_of
from kaiwo.queues.fair_share import share_breakdown
from kaiwo.queues.past_usage import WHOLE_PART
from kaiwo.runtime.loop.learned_state import pack_state, unpack_state
from kaiwo.runtime.loop.past_usage_tracker import SAMPLE_S, UPDATE_S, PastUsageFile, PastUsageInQueues, PastUsageTracker
from kaiwo.snapshot.queue_table import GPU
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.worlds import World

HALF_LIFE_S = 3_600
POLICY = Policy(past_use_half_life_s=HALF_LIFE_S)


def two_teams() -> World:
    return World(policy=POLICY).tell(QueueChanged(Queue("heavy")), QueueChanged(Queue("light")))


def watch(world: World, past_use: PastUsageTracker, seconds: int) -> int:
    """Look again and again, as the loop does; how often the picture was told."""
    told = 0
    for _ in range(0, seconds, SAMPLE_S):
        world.now_s += SAMPLE_S
        world.state.refresh_tables()
        event = past_use.update(world.state, world.now_s)
        if event is not None:
            world.tell(event)
            told += 1
    return told


def gpu_share(world: World, queue: str) -> int:
    view = WorkingCopy(world.snapshot()).view
    return int(fair_shares_of(view).share[view.queues.row[queue], GPU])


def kept(home: Path) -> PastUsageTracker:
    past_use = PastUsageTracker.of(POLICY, PastUsageFile(str(home)))
    assert past_use is not None
    return past_use


def test_a_policy_without_a_half_life_keeps_nothing(tmp_path: Path) -> None:
    assert PastUsageTracker.of(Policy(), PastUsageFile(str(tmp_path))) is None
    assert (
        PastUsageTracker.of(Policy(past_use_half_life_s=60, past_use_strength_milli=0), PastUsageFile(str(tmp_path)))
        is None
    )


def test_past_use_goes_on_after_the_clock_was_set_back(tmp_path: Path) -> None:
    world = two_teams()
    world.running("long", gpus=8, queue="heavy")
    watch(world, kept(tmp_path), HALF_LIFE_S)
    before_s = world.now_s
    world.now_s -= 86_400
    past_use = kept(tmp_path)
    watch(world, past_use, HALF_LIFE_S)
    stored = PastUsageFile(str(tmp_path)).load()
    assert all(at_s <= world.now_s for at_s, _ in stored.values()), "no time is left that hides what is used until then"
    again = kept(tmp_path)
    world.now_s += SAMPLE_S
    assert again.update(world.state, world.now_s) is not None
    assert world.now_s < before_s


def test_who_used_much_lately_gets_less_of_what_both_want(tmp_path: Path) -> None:
    world = two_teams()
    world.running("long", gpus=8, queue="heavy")
    watch(world, kept(tmp_path), 4 * HALF_LIFE_S)
    world.finish("long")
    for queue in ("heavy", "light"):
        for number in range(8):
            world.submit(f"{queue}-{number}", gpus_each=1, queue=queue)
    heavy, light = gpu_share(world, "heavy"), gpu_share(world, "light")
    assert heavy + light == 8_000
    assert heavy < light
    world.settle()
    running = [name for name in world.state.pods if world.is_running(name)]
    assert sum("light" in name for name in running) == light // 1000


def test_half_of_it_is_forgotten_after_a_half_life(tmp_path: Path) -> None:
    world = two_teams()
    world.running("long", gpus=8, queue="heavy")
    past_use = kept(tmp_path)
    watch(world, past_use, 20 * HALF_LIFE_S)
    assert world.state.past_usage is not None
    assert world.state.past_usage.parts["heavy"][GPU] > 0.99 * WHOLE_PART
    world.finish("long")
    watch(world, past_use, HALF_LIFE_S)
    assert abs(world.state.past_usage.parts["heavy"][GPU] / WHOLE_PART - 0.5) < 0.02
    view = WorkingCopy(world.snapshot()).view
    terms = share_breakdown(view.queues, queue_demand_of(view), fair_shares_of(view), view.queues.row["heavy"])
    assert terms[GPU].past_ppm is not None
    assert abs(terms[GPU].past_ppm - 500_000) < 20_000


def test_a_restart_remembers_and_counts_the_pause_as_idle(tmp_path: Path) -> None:
    world = two_teams()
    world.running("long", gpus=8, queue="heavy")
    watch(world, kept(tmp_path), 20 * HALF_LIFE_S)
    world.now_s += HALF_LIFE_S
    again = kept(tmp_path)
    told = again.update(world.state, world.now_s)
    assert told is not None
    assert abs(told.parts["heavy"][GPU] / WHOLE_PART - 0.5) < 0.02


def in_queues(memory: QueueHistory) -> PastUsageTracker:
    past_use = PastUsageTracker.of(POLICY, PastUsageInQueues(memory))
    assert past_use is not None
    return past_use


def handed_over(memory: QueueHistory) -> QueueHistory:
    """What another replica reads in the objects."""
    other = QueueHistory()
    other.upsert("heavy", read_queue_status(Raw(msgspec.json.encode(memory.status("heavy")))))
    return other


def test_another_leader_goes_on_where_the_last_one_was_and_so_does_the_first_when_it_leads_again() -> None:
    world, memory = two_teams(), QueueHistory()
    world.running("long", gpus=8, queue="heavy")
    first = in_queues(memory)
    watch(world, first, 2 * HALF_LIFE_S)
    other = handed_over(memory)
    second = in_queues(other)
    told = second.update(world.state, world.now_s)
    assert told is not None
    assert abs(told.parts["heavy"][GPU] / WHOLE_PART - 0.75) < 0.03
    watch(world, second, 4 * HALF_LIFE_S)
    memory.discard_decisions()
    memory.upsert("heavy", read_queue_status(Raw(msgspec.json.encode(other.status("heavy")))))
    watch(world, first, 2 * SAMPLE_S)
    assert abs(memory.usage["heavy"].part[GPU] / WHOLE - 0.98) < 0.03


def test_the_objects_are_written_when_it_moves_by_a_hundredth_and_not_while_it_fades() -> None:
    world, memory = two_teams(), QueueHistory()
    world.running("long", gpus=8, queue="heavy")
    past_use = in_queues(memory)
    writes = 0
    for _ in range(20 * HALF_LIFE_S // SAMPLE_S):
        watch(world, past_use, SAMPLE_S)
        writes += len(memory.take_unwritten())
    assert writes < 20 * 80  # steady use fades for a reader by a hundredth every minute of a half-life of one hour
    world.finish("long")
    watch(world, past_use, SAMPLE_S)
    memory.take_unwritten()
    watch(world, past_use, 4 * HALF_LIFE_S)
    assert memory.take_unwritten() == []


def test_a_broken_file_is_an_empty_memory(tmp_path: Path) -> None:
    (tmp_path / "past-use.json").write_text("{half")
    world = two_teams()
    world.state.refresh_tables()
    told = kept(tmp_path).update(world.state, 100)
    assert told is not None
    assert told.parts == {}


def test_the_picture_is_told_once_a_minute_while_it_moves_and_not_at_all_when_it_rests(tmp_path: Path) -> None:
    world = two_teams()
    past_use = kept(tmp_path)
    assert watch(world, past_use, 3_600) == 1  # the first word
    world.running("long", gpus=8, queue="heavy")
    assert watch(world, past_use, 600) <= 600 // UPDATE_S


def test_a_journal_base_carries_it(tmp_path: Path) -> None:
    world = two_teams()
    world.running("long", gpus=8, queue="heavy")
    watch(world, kept(tmp_path), HALF_LIFE_S)
    state = pack_state(world.state, world.policy, world.now_s)
    again = unpack_state(world.state.events(), state, world.plugins)
    assert again.past_usage == world.state.past_usage
