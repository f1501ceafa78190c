"""Queues with their fair shares, as the API, the sentences and the metrics tell them."""

import re
from pathlib import Path

from kaiwo.api.views.answers import Outcome, Page
from kaiwo.api.views.queues import QueueView, ShareView, TermsView
from tests.api.world import World, decode, world
from tests.waiting import run, until

LAB = """
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoQueue
metadata: {name: lab}
spec: {resources: {gpu: {quota: 4, limit: 16}}, fairness: {policy: WeightedFair}}
---
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoQueue
metadata: {name: vision}
spec: {parentQueue: lab, resources: {gpu: {quota: 2, overQuotaWeight: 1}}, fairness: {reclaimStrategy: none}}
---
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoQueue
metadata: {name: speech}
spec:
  parentQueue: lab
  users: [ada]
  resources: {gpu: {quota: 2, overQuotaWeight: 2, models: {MI300X: {limit: 6}}}}
  fairness: {reclaimStrategy: conservative, minRuntime: 5m}
"""
NUMBER = r"([\d.]+)(?:Gi|Mi)?"


async def lab(kaiwo: World) -> None:
    """All 16 GPUs are in use, 12 by vision and 4 by speech; 4 and 16 more are asked for."""
    assert (await kaiwo.post("/manifests", LAB)).status_code == 200
    for name, queue in (("v0", "vision"), ("v1", "vision"), ("v2", "vision"), ("s0", "speech")):
        await kaiwo.submit(name, gpus=4, queue=queue, user="ada", simulate="10h")
        await kaiwo.until_state(name, "running")
    for name, queue in (("v3", "vision"), ("s1", "speech"), ("s2", "speech"), ("s3", "speech"), ("s4", "speech")):
        await kaiwo.submit(name, gpus=4, queue=queue, user="ada", simulate="10h")
    backlog = kaiwo.loop.state.backlog
    await until(lambda: len(backlog) == 5 and not backlog.to_try and not backlog.try_all, "all others to wait")


def test_the_queue_tree_has_every_number(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await lab(kaiwo)
            page = decode(await kaiwo.get("/queues"), Page[QueueView])
            assert [(each.name, each.depth) for each in page.items] == [
                ("default", 0), ("lab", 0), ("speech", 1), ("vision", 1),
            ]  # fmt: skip
            _, top, speech, vision = page.items
            assert (top.policy, speech.reclaim_strategy, speech.min_runtime_s) == ("WeightedFair", "conservative", 300)
            assert (speech.users, speech.gpu_models["MI300X"].limit) == (["ada"], 6000)
            of_model = speech.gpu_models["MI300X"]
            assert (of_model.used, of_model.fixed) == (4000, 0)
            assert of_model.used <= of_model.share <= of_model.limit
            assert (vision.gpu_milli.fixed, vision.gpu_milli.used, vision.gpu_milli.waiting) == (0, 12_000, 4000)
            assert (speech.gpu_milli.fixed, speech.gpu_milli.used, speech.gpu_milli.waiting) == (0, 4000, 16_000)
            assert top.gpu_milli.used == speech.gpu_milli.used + vision.gpu_milli.used == 16_000
            assert top.gpu_milli.share == 16_000
            # 16 divided: 2 and 2 deserved, 12 left by 1 to 2.
            assert (vision.gpu_milli.share, speech.gpu_milli.share) == (6000, 10_000)
            one = decode(await kaiwo.get("/queues/speech"), QueueView)
            assert one == speech

    run(work())


def test_every_share_is_the_sum_of_its_terms_in_numbers_and_in_words(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await lab(kaiwo)
            page = decode(await kaiwo.get("/shares"), Page[ShareView])
            assert [each.queue for each in page.items] == ["default", "lab", "speech", "vision"]
            for view in page.items:
                assert [terms.resource for terms in view.resources] == ["gpu", "cpu", "memory", "MI300X"]
                for terms in view.resources:
                    check_terms(terms)
                assert view == decode(await kaiwo.get(f"/shares/{view.queue}"), ShareView)
            by_name = {each.queue: each for each in page.items}
            assert by_name["speech"].resources[0].arithmetic == [
                "divided 16: the fair share of lab",
                "wants 20 = 4 used + 16 waiting",
                "deserved 2 = the least of quota 2, wants 20",
                "share 10 = deserved 2 + 8 (weight 2 of 3, of 12 left, rounded down to whole GPUs) + 0 remainder",
            ]
            assert by_name["vision"].reclaim == "none: it never reclaims capacity"
            assert "its quota is 2" in by_name["speech"].reclaim
            assert by_name["speech"].policy == "WeightedFair"
            turns = [by_name[name].turn for name in ("speech", "vision")]
            assert sorted(turn.place for turn in turns if turn) == [1, 2]
            assert by_name["default"].turn is None
            speech = by_name["speech"]
            assert [each.workload for each in speech.line] == [f"default/s{number}" for number in range(1, 5)]
            assert speech.orders == ["priority-then-age"]
            assert speech.line[0].keys == [[-speech.line[0].priority, 0, speech.line[0].submitted_s]]
            missing = await kaiwo.get("/shares/visoin")
            assert (missing.status_code, "vision" in missing.json()["message"]) == (404, True)

    run(work())


def check_terms(terms: TermsView) -> None:
    assert terms.share == terms.deserved + terms.part + terms.remainder
    assert terms.wants == terms.used + terms.waiting
    quota = terms.total if terms.quota < 0 else terms.quota
    assert terms.deserved == min(quota, terms.wants, terms.wants if terms.limit < 0 else terms.limit)
    if terms.weights:
        unit = 1000 if terms.resource == "gpu" else 1
        assert terms.part == terms.offered * terms.weight // (terms.weights * unit) * unit
    for line in terms.arithmetic[1::2]:
        whole, *parts = (float(found) for found in re.findall(rf"(?:= |\+ |deserved |wants |share ){NUMBER}", line))
        assert abs(whole - sum(parts)) < 1e-6, line


def test_the_metrics_have_every_queue(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await lab(kaiwo)
            text = (await kaiwo.client.get("/metrics")).text
            for line in (
                'kaiwo_queue_quota{queue="default",resource="gpu"} 0.0',
                'kaiwo_queue_quota{queue="default",resource="cpu"} +Inf',
                'kaiwo_queue_quota{queue="lab",resource="gpu"} 4.0',
                'kaiwo_queue_limit{queue="lab",resource="gpu"} 16.0',
                'kaiwo_queue_used{queue="lab",resource="gpu"} 16.0',
                'kaiwo_queue_fair_share{queue="speech",resource="gpu"} 10.0',
                'kaiwo_queue_asked{queue="speech",resource="gpu"} 16.0',
                'kaiwo_queue_waiting{queue="lab"} 5.0',
                'kaiwo_queue_limit{queue="speech",resource="gpu/MI300X"} 6.0',
                'kaiwo_queue_used{queue="speech",resource="gpu/MI300X"} 4.0',
            ):
                assert line in text.splitlines(), line
            used = re.search(r'kaiwo_queue_used{queue="lab",resource="memory"} (\S+)', text)
            assert used is not None
            assert float(used[1]) == 1024 * 1024 * kaiwo.loop.state.queues.used[1, 2]
            for name in set(re.findall(r"^(kaiwo_queue_\w+){", text, re.MULTILINE)):
                assert re.search(rf"^# HELP {name} \S.*\.$", text, re.MULTILINE), name

    run(work())


def test_evictions_are_counted_by_queue_and_cause(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            await kaiwo.post("/manifests", LAB)
            await kaiwo.submit("rich", gpus=8, queue="default", simulate="10h")
            await kaiwo.until_state("rich", "running")
            changed = "apiVersion: kaiwo.ai/v1alpha2\nkind: KaiwoQueue\nmetadata: {name: default}\n"
            assert (await kaiwo.post("/manifests", changed)).status_code == 200
            await kaiwo.submit("poor", gpus=2, queue="speech", user="ada", simulate="10h")
            await kaiwo.until_state("poor", "running")
            assert kaiwo.loop.evicted == {("default", "reclaim"): 1}
            metrics = (await kaiwo.client.get("/metrics")).text
            assert 'kaiwo_queue_evictions_total{cause="reclaim",queue="default"} 1.0' in metrics

    run(work())


def test_what_queues_promise_too_much_is_a_warning(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            more = LAB.replace("quota: 2, overQuotaWeight: 1", "quota: 3, overQuotaWeight: 1")
            for dry_run in (True, False):
                done = decode(await kaiwo.post("/manifests", more, dry_run=dry_run), Outcome)
                assert any(
                    "queue lab has a GPU quota of 4, and the queues below it 5" in each for each in done.warnings
                )
            again = decode(await kaiwo.post("/manifests", more), Outcome)
            assert again.done == ["queue lab unchanged", "queue vision unchanged", "queue speech unchanged"]
            other = "apiVersion: kaiwo.ai/v1alpha2\nkind: KaiwoQueue\nmetadata: {name: ops}\n"
            assert decode(await kaiwo.post("/manifests", other), Outcome).warnings == []

    run(work())
