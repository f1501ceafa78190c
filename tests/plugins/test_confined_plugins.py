"""A confined plugin answers as it would inside the scheduler, in batches, and its plans can be decided again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.history import Journal
from kaiwo.model.events import NodeChanged, PodGone, QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.plan import encode_plan
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.plugins.registry import Registry
from kaiwo.plugins.testing import all_nodes, view_of
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.runtime.loop.replay import replay
from kaiwo.runtime.plugin_worker import confined_plugin
from kaiwo.runtime.plugin_worker.confined_plugin import _version
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy, start_view
from tests.api.world import node
from tests.plugins.conftest import Started
from tests.plugins.strangers import well_behaved
from tests.worlds import World


def registry(plugin: Any) -> Registry:
    found = builtin_registry()
    found.replace_all((plugin, *found.plugins))
    return found


def story(plugins: Registry, policy: Policy) -> list[bytes]:
    """The plans of a small cluster with two queues, shares, and work that must make room."""
    world = World(nodes=4, policy=policy, plugins=plugins).queue("zebra").queue("ant")
    plans = []
    for number in range(4):
        for queue in ("ant", "zebra"):
            world.submit(f"{queue}-{number}", gpus_each=2 + number, queue=queue, submitted_s=number)
        world.submit(f"share-{number}", fraction_milli=300, queue="ant").submit(f"cpu-{number}", cpu_milli=2_000)
        plan = decide(world.snapshot(), policy, plugins)
        assert plan.notes == ()
        plans.append(encode_plan(replace(plan, rules="")))
        world.after(plan).let_go()
    full = World(nodes=2, policy=policy, plugins=plugins).submit("old-1", gpus_each=8).submit("old-2", gpus_each=8)
    full.settle()
    full.submit("urgent", gpus_each=8, priority=9)
    plan = decide(full.snapshot(), policy, plugins)
    return [*plans, encode_plan(replace(plan, rules=""))]


@pytest.mark.parametrize("name", well_behaved.KINDS)
def test_every_kind_gives_the_same_plans_inside_and_confined(name: str, confined: Started) -> None:
    policy = Policy(gpu_strategy="last-device" if name == "LastDevice" else DEFAULT_POLICY.gpu_strategy)
    inside = story(registry(getattr(well_behaved, name)()), policy)
    assert story(registry(confined(name)), policy) == inside
    assert inside != story(builtin_registry(), DEFAULT_POLICY), "the plugin has no effect in this story"


def test_a_score_is_asked_once_for_all_nodes_and_again_after_a_fixed_count(
    confined: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_plugin, "ASK_EVERY", 10)
    plugin, view = confined("MostFreeCpu"), view_of([node(f"n-{at}") for at in range(5)])
    want, rows = Request(1_000), all_nodes(view)
    first = plugin._score(view, want, rows)
    assert plugin._score(view, want, rows[2:3]).tolist() == first[2:3].tolist()
    assert plugin.worker.costs.calls == 1
    begin = view.clock
    for more, calls in ((9, 1), (10, 2), (19, 2), (20, 3)):
        view.__dict__["clock"] = begin + more
        plugin._score(view, want, rows[:1])
        assert plugin.worker.costs.calls == calls
    plugin._score(view, Request(2_000), rows[:1])
    assert plugin.worker.costs.calls == 4


def six_requests_a_cycle(plugins: Registry) -> list[bytes]:
    world, plans = World(nodes=4, plugins=plugins), []
    for number in range(3):
        for at in range(6):
            world.submit(f"w{number}-{at}", cpu_milli=1_000 + at, gpus_each=at % 3)
        plan = decide(world.snapshot(), DEFAULT_POLICY, plugins)
        assert plan.notes == ()
        plans.append(encode_plan(replace(plan, rules="")))
        world.after(plan)
    return plans


def test_the_requests_of_the_last_cycle_are_asked_about_together(
    confined: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only at the start of a cycle, which nothing changes: so the plans are the same."""
    together = confined("MostFreeCpu")
    plans = six_requests_a_cycle(registry(together))
    monkeypatch.setattr(confined_plugin, "ASK_ALONG", 0)
    alone = confined("MostFreeCpu")
    assert six_requests_a_cycle(registry(alone)) == plans
    assert alone.worker.costs.calls - together.worker.costs.calls == 2 * 5  # in the second and the third cycle


@pytest.mark.parametrize("name", ["ShortForOne", "RaisesForOne"])
def test_a_wrong_answer_about_one_of_them_is_blamed_as_ever(confined: Started, name: str) -> None:
    plugin = confined(name)
    views = [start_view(World(nodes=4).snapshot()) for _ in range(2)]
    rows, good, bad = views[0].all_rows, Request(1_000), Request(777)
    assert plugin._score(views[0], good, rows).tolist() == [0, 0, 0, 0]
    plugin._start_of(views[0]).asked.append(("score", bad))
    if name == "ShortForOne":
        assert plugin._score(views[1], good, rows).tolist() == [0, 0, 0, 0]
        assert plugin._score(views[1], bad, rows).tolist() == [0]
    else:
        with pytest.raises(PluginFaultError, match="raised ValueError: not 777"):
            plugin._score(views[1], good, rows)


def test_amounts_at_the_start_are_copied_again_after_others_took_their_place(confined: Started) -> None:
    plugin, world = confined("MostFreeCpu"), World(nodes=2)
    start, rows = start_view(world.snapshot()), np.arange(2)
    assert plugin._score(start, Request(1_000), rows).tolist() == [1000, 1000]
    other = View(vars(start) | {"free": start.free // 2, "is_start": False})  # as a cycle's own, after placements
    assert plugin._score(other, Request(1_000), rows).tolist() == [500, 500]
    assert plugin._score(start, Request(2_000), rows).tolist() == [1000, 1000]
    assert plugin._score(start, Request(3_000), rows).tolist() == [1000, 1000]


def test_a_view_with_amounts_of_its_own_is_asked_about_as_it_is(confined: Started) -> None:
    plugin, view = confined("MostFreeCpu"), view_of([node("a"), node("b")])
    rows = np.array([1])
    other = view.with_amounts(rows, view.free[rows] // 2, view.gpus[rows])
    assert plugin._score(view, Request(1_000), rows).tolist() == [1000]
    assert plugin._score(other, Request(1_000), rows).tolist() == [500]


def test_only_new_nodes_are_told_and_removed_ones_are_forgotten(confined: Started) -> None:
    plugin, world = confined("MostFreeCpu"), World(nodes=3)
    told: list[tuple[list[str] | None, list[str]]] = []
    define = plugin.worker.define

    def listen(new: Any) -> None:
        told.append((None if new.names is None else list(new.names), [each.name for each in new.nodes]))
        define(new)

    plugin.worker.define = listen  # type: ignore[method-assign]
    for change in (lambda: None, lambda: world.node("node-1", labels={"a": "b"}), lambda: world.node("new")):
        change()
        world.submit(f"w{len(told)}", cpu_milli=1_000)
        decide(world.snapshot(), DEFAULT_POLICY, registry(plugin))
        decide(world.snapshot(), DEFAULT_POLICY, registry(plugin))
    names = ["node-0", "node-1", "node-2"]
    assert told == [(names, names), (None, ["node-1"]), (["new", *names], ["new"])]


def test_a_question_about_a_change_does_not_confuse_the_worker(confined: Started) -> None:
    """A fork of the state reaches the same version with another definition of the node."""
    plugin, world = confined("CountsLabels"), World(nodes=2)
    fork = world.state.fork()
    fork.patch([NodeChanged(replace(fork.node_objects["node-0"], labels={"a": "1", "b": "2"}))])
    world.tell(NodeChanged(replace(world.state.node_objects["node-0"], labels={"c": "3"})))
    views = [WorkingCopy(state.snapshot(0)).view for state in (world.state, fork, world.state)]
    assert _version(views[0]) == _version(views[1])
    found = [plugin._score(view, Request(1_000), all_nodes(view)).tolist() for view in views]
    assert found == [[1, 0], [2, 0], [1, 0]]


def test_every_journaled_plan_is_decided_again_with_a_new_worker(
    confined: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler's caches and the batches of earlier cycles must not show in a plan."""
    monkeypatch.setattr(confined_plugin, "ASK_EVERY", 3)
    cycles = []
    with Journal(tmp_path / "journal") as journal:
        runner = CycleRunner(journal, DEFAULT_POLICY, registry(confined("MostFreeCpu")))
        events: list[Any] = [QueueChanged(Queue("default")), *(NodeChanged(node(f"n-{at}")) for at in range(6))]
        for now_s in range(1, 13):
            for at in range(4):
                request = Request(1_000 * (1 + (now_s + at) % 5), 1_024, gpus=at % 3)
                events.append(WorkloadChanged(Workload(f"default/w{now_s}-{at}", (Role(request),), submitted_s=now_s)))
            if now_s % 3 == 0:
                for name in sorted(runner.state.pods)[:3]:
                    events += [WorkloadGone(name), *(PodGone(name, pod) for pod in runner.state.pods[name])]
            runner.state.patch(events)
            runner.journal_events(events)
            events = []
            decision = runner.cycle(now_s)
            assert decision is not None
            assert decision.plan.notes == ()
            cycles.append(decision.summary.number)
    plugins = registry(confined("MostFreeCpu"))
    results = [replay(str(tmp_path), number, plugins) for number in cycles]
    assert [result.is_same for result in results] == [True] * len(cycles)
    assert {result.differences for result in results} == {()}
    more = registry(confined("MostFreeCpu"))
    more.replace_all((confined("AvoidFirstNode"), *more.plugins))  # an administrator enabled it later
    assert replay(str(tmp_path), cycles[-1], more).is_same
    missing = replay(str(tmp_path), cycles[-1])
    assert missing.differences == ("plugin most-free-cpu 1 took part and is missing now",)


def test_the_kernel_ends_a_worker_first_when_memory_runs_short(confined: Started) -> None:
    plugin = confined("MostFreeCpu")
    assert Path(f"/proc/{plugin.worker.pid}/oom_score_adj").read_text() == "1000\n"


def test_a_worker_has_an_empty_environment_and_no_open_files_but_its_pipes(confined: Started) -> None:
    plugin, view = confined("CountsOpenFiles"), view_of([node("a")])
    assert plugin._score(view, Request(1_000), all_nodes(view)).tolist() == [2]
    plugin, view = confined("CountsVariables"), view_of([node("a")])
    assert plugin._score(view, Request(1_000), all_nodes(view)).tolist() == [0]
