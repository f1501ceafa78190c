"""The policy of a running Kaiwo: seen, checked, changed, undone; it survives a restart, and replays agree."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from kaiwo.manifests.policy_file import read_policy
from kaiwo.manifests.write_policy import policy_changes, policy_document
from kaiwo.model.errors import RefusedError
from kaiwo.model.policy import ACTIONS, DEFAULT_POLICY, SLOW_NODES, VICTIM_ORDERS, Policy, TopologyWeights
from kaiwo.runtime.loop.live_policy import FILE, LivePolicy
from kaiwo.runtime.loop.replay import replay_range
from tests.api.fake_loop import FakeLoop
from tests.api.world import world
from tests.waiting import run

SECONDS = st.integers(1, 10**6)
PREDICTED = st.just({}) | st.fixed_dictionaries(
    {
        "predicted_ahead_s": st.integers(1, 23 * 3600),
        "predicted_priority": st.integers(-1000, 1000),
        "predicted_permille": st.integers(0, 1000),
    }
)
POLICIES = st.builds(
    lambda predicted, **fields: Policy(**predicted, **fields),
    predicted=PREDICTED,
    gpu_strategy=st.sampled_from(["fragmentation-aware", "worst-fit"]),
    replica_strategy=st.sampled_from(["live-room", "even"]),
    keep_lost_place_s=SECONDS,
    max_restart_cost_s=SECONDS,
    spare_ending_s=SECONDS,
    slow_nodes=st.sampled_from(SLOW_NODES),
    slow_below_percent=st.integers(1, 100),
    slow_for_s=SECONDS,
    move_hours=st.sampled_from([(), ("22:00-06:00",)]),
    moves_at_once=st.integers(1, 1000),
    moves_per_hour=st.integers(1, 1000),
    steps=st.integers(1, 10**6),
    placement=st.sampled_from(["pack", "spread"]),
    score_weights=st.dictionaries(st.sampled_from(["pack", "steady-nodes"]), st.integers(0, 1000)),
    disabled_plugins=st.sampled_from([(), ("request-mix",)]),
    actions=st.sets(st.sampled_from(ACTIONS)).map(lambda found: ("allocate", *sorted(found - {"allocate"}))),
    victim_order=st.sampled_from(VICTIM_ORDERS),
    age_boost_milli=st.integers(-(10**6), 10**6),
    size_boost_milli=st.integers(-(10**6), 10**6),
    stale_gang_grace_s=SECONDS,
    promises=st.integers(0, 1000),
    large_permille=st.integers(0, 1000),
    hold_off_s=SECONDS,
    past_use_half_life_s=SECONDS,
    past_use_strength_milli=st.integers(0, 100_000),
    share_with=st.sampled_from([(), ("queue",), ("nobody",)]),
    topology_strategy=st.sampled_from(["consolidated", "balanced", "stated"]),
    topology_weights=st.builds(TopologyWeights, st.integers(1, 1000), st.integers(0, 1000)),
    domain_queues=st.dictionaries(st.sampled_from(["rack-1", "rack-2"]), st.just(("lab",))),
    max_wait_s=st.integers(0, 10**6),
    overdue_run_s=st.integers(0, 10**6),
)


@given(POLICIES)
def test_a_policy_that_is_written_is_read_as_the_same(policy: Policy) -> None:
    assert read_policy(json.encode(policy_document(policy)).decode()) == policy
    assert policy_changes(policy, policy) == []


def test_no_field_of_the_policy_is_forgotten() -> None:
    """What the writer leaves out, the next change of the running policy would reset."""
    policy = Policy(
        steps=7, gpu_strategy="worst-fit", placement="spread", score_weights={"pack": 3},
        disabled_plugins=("request-mix",), actions=("allocate",), victim_order="youngest", age_boost_milli=1,
        size_boost_milli=2, stale_gang_grace_s=3, promises=4, large_permille=5, hold_off_s=6, past_use_half_life_s=7,
        past_use_strength_milli=8, keep_lost_place_s=9, share_with=("queue",), max_restart_cost_s=10,
        topology_strategy="balanced", topology_weights=TopologyWeights(1, 2, 3, 4), spare_ending_s=11,
        domain_queues={"rack-1": ("lab",)}, replica_strategy="even", max_wait_s=12, overdue_run_s=13,
        predicted_ahead_s=14, predicted_priority=15, predicted_permille=16, slow_nodes="leave", slow_below_percent=17,
        slow_for_s=18, move_hours=("22:00-06:00",), moves_at_once=19, moves_per_hour=20,
        adjustment="act", adjust_headroom_percent=21, adjust_after_runs=9, idle_action="release", idle_after_s=61,
    )  # fmt: skip
    same = [name for name in Policy.__struct_fields__ if getattr(policy, name) == getattr(DEFAULT_POLICY, name)]
    assert same == [], "give these another value above"
    assert read_policy(json.encode(policy_document(policy)).decode()) == policy


def test_a_default_policy_is_an_empty_file() -> None:
    assert policy_document(DEFAULT_POLICY) == {}


def test_a_change_is_checked_made_recorded_and_undone(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=2) as it:
            it.context.policy = LivePolicy(str(tmp_path))
            for number in range(3):
                await it.submit(f"before-{number}", gpus=1)
            await it.until_state("before-2", "running")
            assert (await it.get("/policy")).json() == {"policy": {}, "source": "the default", "changes": []}
            asked = {"set": {"placement": "spread", "ageBoost": "0.5"}}
            would = await it.post("/policy", {**asked, "dry_run": True})
            changed = [{"field": "placement", "before": "pack", "after": "spread"}]
            changed += [{"field": "ageBoost", "before": "0", "after": "0.5"}]
            assert would.json() == {"fields": changed, "message": "2 fields would change"}
            assert it.loop.policy == DEFAULT_POLICY
            made = await it.post("/policy", asked, reason="hot")
            assert made.json()["message"] == "2 fields changed", made.text
            view = (await it.get("/policy")).json()
            assert view["policy"] == {"placement": "spread", "ageBoost": 0.5}
            assert [(each["reason"], each["fields"]) for each in view["changes"]] == [("hot", changed)]
            for number in range(4):
                await it.submit(f"after-{number}", gpus=1)
                await it.until_state(f"after-{number}", "running")
            nodes = {pod.node for n in range(4) for pod in it.loop.state.pods[f"default/after-{n}"].values()}
            assert len(nodes) == 2, "the new policy spreads"
            entry = next(each for each in (await it.get("/audit")).json()["items"] if each["object"] == "policy")
            assert (entry["reason"], entry["new"]) == ("hot", '{"placement":"spread","ageBoost":0.5}')
            undone = await it.post("/policy/undo", {})
            assert undone.status_code == 200, undone.text
            assert it.loop.policy == DEFAULT_POLICY
            assert (await it.post("/policy/undo", {})).status_code == 409
            assert it.loop.last_cycle is not None
            last = it.loop.last_cycle.number
        results = list(replay_range(str(tmp_path), 1, last))
        assert len(results) == last
        assert all(each.is_same for each in results)

    run(story())


def test_what_could_not_work_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            it.context.policy = LivePolicy(str(tmp_path))
            for body, status, sentence in (
                ({"set": {"placment": "spread"}}, 400, "did you mean placement?"),
                ({"set": {"placement": "sideways"}}, 400, "placement"),
                ({"set": {"gpuStrategy": "best"}}, 400, "gpuStrategy"),
                ({"set": {"placement.inner": "x"}}, 400, "placement"),
                ({"set": {".".join(["a"] * 3000): "x"}}, 400, "no fields inside fields"),
                ({}, 400, "either `file`"),
                ({"file": "placement: spread", "set": {"steps": "3"}}, 400, "either `file`"),
                ({"set": {"pastUse.halfLife": "7d"}}, 409, "pastUse cannot be changed while Kaiwo runs"),
            ):
                answered = await it.post("/policy", body)
                assert (answered.status_code, sentence in answered.json()["message"]) == (status, True), answered.text
            assert it.loop.policy == DEFAULT_POLICY

    run(story())


def test_a_change_is_private_and_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as it:
            it.context.policy = LivePolicy(str(tmp_path))
            assert (await it.post("/policy", {"set": {"placement": "spread"}})).status_code == 200
            assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
            (tmp_path / "policy.new").symlink_to("/dev/full")
            refused = await it.post("/policy", {"set": {"placement": "pack"}})
            assert refused.status_code == 503, refused.text
            assert str(tmp_path / FILE) in refused.json()["message"]
            assert it.loop.policy.placement == "spread"

    run(story())


def test_changes_that_come_at_the_same_time_are_all_made(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as it:
            it.context.policy = LivePolicy(str(tmp_path))
            fields = {"placement": "spread", "steps": "777", "promises": "3", "maxWait": "5h"}
            await asyncio.gather(*(it.post("/policy", {"set": {name: text}}) for name, text in fields.items()))
            assert (it.loop.policy.placement, it.loop.policy.steps, it.loop.policy.promises) == ("spread", 777, 3)
            assert len(it.context.policy.changes) == 4
            while it.context.policy.changes:
                assert (await it.post("/policy/undo")).status_code == 200
            assert it.loop.policy == DEFAULT_POLICY

    run(story())


def test_a_change_survives_a_restart_until_the_file_is_edited(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("promises: 3\n")
    from_file, live = read_policy(file.read_text()), FakeLoop()
    live.policy = from_file
    spread = read_policy("{promises: 3, placement: spread}")

    async def change() -> None:
        await LivePolicy(str(tmp_path), str(file)).change(live, spread, "ada", "")

    run(change())
    assert live.policy == spread
    again = LivePolicy(str(tmp_path), str(file))
    assert again.load(from_file, live.plugins) == spread
    assert [each.by for each in again.changes] == ["ada"]
    file.write_text("promises: 4\n")
    edited = LivePolicy(str(tmp_path), str(file))
    assert edited.load(read_policy("promises: 4"), live.plugins).promises == 4
    assert edited.changes == ()
    (tmp_path / FILE).write_text("{")
    with pytest.raises(Exception, match="remove it to start with the policy file"):
        LivePolicy(str(tmp_path), str(file)).load(from_file, live.plugins)


def test_on_kubernetes_the_answer_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="helm upgrade kaiwo"):
        LivePolicy().check(FakeLoop(), DEFAULT_POLICY)
