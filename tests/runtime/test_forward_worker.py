"""The worker process: it answers as the library does, is bounded, and its failure is a sentence."""

import asyncio
from typing import Any

import msgspec
import pytest

from kaiwo.forecast.recent_arrivals import SavedArrivals
from kaiwo.forecast.run_time_forecast import SavedForecast
from kaiwo.model.errors import ConfigError, KaiwoError
from kaiwo.runtime.forecasting.forward_jobs import ForwardAnswer, ForwardJob
from kaiwo.runtime.forecasting.forward_worker import WORKER
from kaiwo.runtime.forecasting.what_if_changes import NodesToAdd, WhatIfForm, events_of, read_question
from kaiwo.runtime.forecasting.worker_main import answer
from kaiwo.runtime.loop.learned_state import pack_state
from kaiwo.runtime.loop.worker_question import ask_worker
from tests.worlds import World


def line(count: int = 6) -> World:
    world = World(nodes=1, gpus_per_node=8)
    for number in range(count):
        world.submit(f"job-{number}", gpus_each=4, estimate_s=600)
    world.settle()
    return world


def job(world: World, **changes: Any) -> ForwardJob:
    learned = pack_state(world.state, world.policy, world.now_s)
    base = (world.state.events(), learned, SavedForecast(), SavedArrivals(), world.now_s, world.policy, 300, 86_400)
    return msgspec.structs.replace(ForwardJob(*base), **changes)


def test_the_process_answers_as_the_library_does() -> None:
    question = job(line())
    answered = msgspec.msgpack.decode(
        asyncio.run(ask_worker(WORKER, msgspec.msgpack.encode(question))), type=ForwardAnswer
    )
    assert answered == answer(question)
    assert answered.starts["default/job-5"].middle_s == 1_200


def test_more_nodes_shorten_the_wait_and_fewer_lengthen_it() -> None:
    world = line()
    for form, is_shorter in ((WhatIfForm(add_nodes=[NodesToAdd(1)]), True), (WhatIfForm(limits={"default": 4}), False)):
        found = answer(job(world, changes=events_of(read_question(form, "ada", 0), world.state)))
        assert found.before is not None
        assert found.after is not None
        waits = [outcome.queues[0].wait_s for outcome in (found.before, found.after)]
        assert (waits[1] < waits[0]) is is_shorter, waits
        assert found.before.queues[0].gpu_s == found.after.queues[0].gpu_s == 6 * 4 * 600


def test_a_workload_of_the_question_has_a_start() -> None:
    world = line(2)
    form = WhatIfForm(manifests="name: probe\ngpus: 8\nestimate: 10m\npriority: 0\n")
    found = answer(job(world, changes=events_of(read_question(form, "ada", 0), world.state)))
    assert found.added == {"default/probe": 600}
    assert "default/probe" not in world.state.workloads


def test_work_of_a_removed_node_waits_again() -> None:
    world = line(2).node("other", gpus=8)
    found = answer(
        job(world, changes=events_of(read_question(WhatIfForm(remove_nodes=["node-0"]), "ada", 0), world.state))
    )
    assert found.before is not None
    assert found.after is not None
    assert [found.before.queues[0].waiting, found.after.queues[0].waiting] == [0, 2]
    assert found.after.gpus == 8


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        (WhatIfForm(quotas={"defualt": 3}), "there is no queue 'defualt'; did you mean default?"),
        (WhatIfForm(quotas={"default": -1}), "the quota of default is -1 GPUs; write 0 to 1,000,000"),
        (WhatIfForm(remove_nodes=["node-9"]), "there is no node 'node-9'"),
        (WhatIfForm(add_nodes=[NodesToAdd(9_999)]), "9,999 nodes would be added; at most 1,000 are possible"),
        (WhatIfForm(add_nodes=[NodesToAdd(9_999), NodesToAdd(-9_999)]), "nodes are added in numbers of 1 or more"),
        (WhatIfForm(partitions={"node-0": "QPX"}), "the GPUs of node-0 have no mode QPX; choose from: CPX+NPS1"),
    ],
)
def test_a_mistake_is_a_sentence(form: WhatIfForm, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        events_of(read_question(form, "ada", 0), line().state)
    assert str(caught.value).startswith(sentence)


def test_a_worker_that_fails_or_takes_too_long_is_a_sentence() -> None:
    with pytest.raises(KaiwoError, match="ended with code 1; try again"):
        asyncio.run(ask_worker(WORKER, b"no job"))
    with pytest.raises(KaiwoError, match=r"running the cluster forward took longer than 0\.05 s"):
        asyncio.run(ask_worker(WORKER._replace(longest_s=0.05), msgspec.msgpack.encode(job(line()))))
