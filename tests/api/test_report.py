"""GET /report and /idle: GPU time by month, queue and user, and who holds GPUs that do nothing."""

from pathlib import Path

from kaiwo.api.views.report import IdleListView, ReportView
from kaiwo.devices.agent_messages import GpuSample, Hello, Sample
from kaiwo.devices.inventory import Inventory, Telemetry
from tests.api.past_week import GPUS, HOUR, VirtualClock, measured_hour, week_later
from tests.api.people import bearer, token_for
from tests.api.world import World, decode, world
from tests.waiting import run


async def report(it: World, **query: object) -> ReportView:
    answer = await it.get("/report", **query)
    assert answer.status_code == 200, answer.text
    return decode(answer, ReportView)


def test_gpu_time_is_counted_for_its_queue_and_user(tmp_path: Path) -> None:
    async def story() -> None:
        async with week_later(tmp_path) as it:
            by_user = {each.user: each for each in (await report(it, by="user")).rows}
            ada = by_user["ada"]
            assert abs(ada.held_gpu_milli_s - 8000 * 2 * HOUR) < 8000 * 900, "two hours, and some minutes unseen"
            assert abs(ada.used_gpu_milli_s - 8000 * 1.2 * HOUR) < 8000 * 60
            assert ada.used_gpu_milli_s < ada.measured_gpu_milli_s <= ada.held_gpu_milli_s
            (queue,) = (await report(it, by="queue")).rows
            assert (queue.queue, queue.user, queue.period) == ("default", "", "")
            assert queue.held_gpu_milli_s == sum(each.held_gpu_milli_s for each in by_user.values())
            assert (await report(it, by="queue", last=86_400)).rows == []
            months = (await report(it)).rows
            assert {(len(each.period), each.queue) for each in months} == {(7, "default")}
            assert {len(each.period) for each in (await report(it, by="day", user="ada")).rows} == {10}
            assert (await it.get("/report", by="day,month")).status_code == 400

    run(story())


def test_people_see_sums_and_themselves(tmp_path: Path) -> None:
    async def story() -> None:
        async with week_later(tmp_path) as it:
            bob = bearer(await token_for(it, "bob", "user", "default"))

            async def seen(**query: str) -> ReportView:
                return decode(await it.client.get("/api/v1/report", params=query, headers=bob), ReportView)

            everybody = (await report(it, by="queue")).rows
            assert (await seen(by="queue")).rows == everybody
            assert {each.user for each in (await seen(by="user")).rows} <= {"bob"}
            assert {each.user for each in (await seen(by="user,queue", user="ada")).rows} <= {"bob"}
            only = await seen(by="queue", user="ada")
            assert only.hidden
            assert only.rows != everybody

    run(story())


def test_who_holds_gpus_that_do_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        clock = VirtualClock()
        async with world(tmp_path, nodes=1, ticks=clock.ticks, wall=clock.wall) as it:
            assert not decode(await it.get("/idle"), IdleListView).measured
            await it.context.agents.receive(Hello("node-0", "1", "", Inventory("node-0", GPUS)))
            await it.submit("lazy", gpus=4, command=["sleep", "1000"], user="ada")
            await it.until_state("lazy", "running")
            await measured_hour(it, clock, busy=2)
            samples = tuple(GpuSample(gpu.id, Telemetry(60 if gpu.order % 2 else 0, 1000)) for gpu in GPUS)
            await it.context.agents.receive(Sample("node-0", 2**40, 0.0, samples))
            await clock.jump(it, 60)
            await it.context.series.sample(it.cluster.now_s())
            found = decode(await it.get("/idle"), IdleListView)
            (lazy,) = found.items
            assert (lazy.workload, lazy.user, lazy.held_gpu_milli, lazy.idle_gpu_milli) == (
                "default/lazy", "ada", 4000, 2000,
            )  # fmt: skip
            assert HOUR <= found.now_s - lazy.since_s < HOUR + 300

    run(story())
