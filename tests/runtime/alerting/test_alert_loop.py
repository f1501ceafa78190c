"""The alerts of a running Kaiwo: rules on what it records, a file that may change, a restart that loses nothing."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from kaiwo.model.errors import ConfigError
from kaiwo.runtime.alerting.alert_loop import AlertLoop
from kaiwo.telemetry.alerts.alert_store import FILE
from tests.api.people import bearer, token_for
from tests.api.world import World, world
from tests.runtime.alerting.receivers import http_receiver
from tests.waiting import run, until

SECRET = "hook-4711"
FULL = """
rules:
- {name: gpus-full, kind: ratio, of: cluster, measure: gpu_used_milli, over: gpu_milli, above: 90%, keep: 0}
"""


def settings(url: str, jobs: str = "{}") -> str:
    return f"{FULL}channels:\n- {{name: ops, type: webhook, url: '{url}/{SECRET}'}}\njobs: {jobs}\n"


def use(it: World, folder: Path, text: str) -> AlertLoop:
    (folder / "alerts.yaml").write_text(text)
    it.context.alerts.use_file(str(folder / "alerts.yaml"))
    return it.context.alerts


async def look(it: World) -> None:
    """A sample now, as the recorder takes one every ten seconds."""
    await it.context.series.sample(it.cluster.now_s())


async def fired(it: World) -> list[str]:
    return [alert["rule"] for alert in (await it.get("/alerts")).json()["alerts"] if alert["fired_s"]]


def test_what_a_running_kaiwo_records_is_alerted_told_listed_and_resolved(tmp_path: Path) -> None:
    async def story() -> None:
        async with http_receiver() as receiver, world(tmp_path, nodes=1) as it:
            use(it, tmp_path, settings(receiver.url))
            await look(it)
            assert await fired(it) == []
            await it.submit("wide", gpus=8, simulate="1h", user="ada")
            await it.until_state("wide", "running")
            await look(it)
            assert await fired(it) == ["gpus-full"]
            await until(lambda: receiver.bodies)
            assert receiver.bodies[0]["alerts"][0]["summary"] == "gpu_used_milli of cluster is 100.0 %"
            assert "kaiwo_alerts{" in await it.metrics()
            await it.delete("/workloads/default/wide")
            await it.until_state("wide", "cancelled")
            await until(lambda: not it.loop.state.pods.get("default/wide"))
            await look(it)
            assert await fired(it) == []
            past = (await it.get("/alerts/history")).json()["alerts"]
            assert [(alert["rule"], alert["state"]) for alert in past] == [("gpus-full", "resolved")]
            await until(lambda: len(receiver.bodies) == 2)
            assert receiver.bodies[1]["alerts"][0]["status"] == "resolved"
            assert receiver.bodies[1]["alerts"][0]["id"] == receiver.bodies[0]["alerts"][0]["id"]

    run(story())


def test_no_alert_is_lost_over_a_restart_and_none_is_told_twice(tmp_path: Path) -> None:
    """The receiver is away when it fires; Kaiwo ends; another Kaiwo tells it, and that it is resolved."""

    async def story() -> None:
        async with http_receiver() as gone:
            url = gone.url
        async with world(tmp_path, nodes=1) as it:
            loop = use(it, tmp_path, settings(url))
            await it.submit("wide", gpus=8, simulate="1h")
            await it.until_state("wide", "running")
            await look(it)
            await until(lambda: loop.channels["ops"].status.failures)
        async with http_receiver(int(url.rpartition(":")[2])) as receiver, world(tmp_path, nodes=1) as it:
            use(it, tmp_path, settings(url))
            await it.until_state("wide", "running")
            await look(it)
            await until(lambda: receiver.bodies)
            await look(it)
            await it.delete("/workloads/default/wide")
            await until(lambda: not it.loop.state.pods.get("default/wide"))
            await look(it)
            await until(lambda: len(receiver.bodies) == 2)
            told = [(alert["rule"], alert["status"]) for body in receiver.bodies for alert in body["alerts"]]
            assert told == [("gpus-full", "firing"), ("gpus-full", "resolved")]

    run(story())


def test_people_are_told_when_their_work_ends_also_when_it_ended_while_kaiwo_was_away(tmp_path: Path) -> None:
    async def story() -> None:
        async with http_receiver() as receiver:
            jobs = "{channels: [ops], outcomes: [failed, succeeded]}"
            async with world(tmp_path, nodes=1) as it:
                use(it, tmp_path, settings(receiver.url, jobs))
                await it.submit("early", gpus=1, command=["false"], user="ada")
                await it.until_state("early", "failed")
                await until(lambda: receiver.bodies)
                await it.submit("late", gpus=1, command=["sleep", "2"], user="grace")
                await it.until_state("late", "running")
            await asyncio.sleep(3)
            async with world(tmp_path, nodes=1) as it:
                use(it, tmp_path, settings(receiver.url, jobs))
                await it.until_state("late", "succeeded")
                await until(lambda: len(receiver.bodies) == 2)
            told = [(notice["workload"], notice["code"], notice["user"]) for body in receiver.bodies
                    for notice in body["notices"]]  # fmt: skip
            assert told == [
                ("default/early", "workload-failed", "ada"),
                ("default/late", "workload-succeeded", "grace"),
            ]

    run(story())


def test_a_changed_file_counts_from_the_next_evaluation_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            loop = use(it, tmp_path, FULL)
            await look(it)
            path = tmp_path / "alerts.yaml"
            path.write_text("rules: [{name: x, kind: nonsense}]")
            await until(lambda: path.stat().st_mtime != loop._seen_mtime)
            await look(it)
            view = (await it.get("/alerts")).json()
            assert "kind is" in view["problem"]
            assert view["rules"] == len(loop.settings.rules)
            path.write_text(FULL.replace("gpus-full", "gpus-all-held"))
            await asyncio.sleep(0.02)
            await look(it)
            names = [rule["name"] for rule in (await it.get("/alerts/rules")).json()["rules"]]
            assert "gpus-all-held" in names
            assert "gpus-full" not in names
            assert not (await it.get("/alerts")).json()["problem"]

    run(story())


def test_changed_addresses_of_people_count_for_channels_that_stay(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            mail = "channels: [{name: post, type: email, server: 'h:25', from: k@x.org, to: [ops@x.org]}]\n"
            jobs = "jobs: {channels: [post], people: {ada: %s}}\n"
            loop = use(it, tmp_path, mail + jobs % "ada@before.example.com")
            await look(it)
            (tmp_path / "alerts.yaml").write_text(mail + jobs % "ada@now.example.com")
            os.utime(tmp_path / "alerts.yaml", (1, 1))
            await look(it)
            assert loop.channels["post"].jobs.people == {"ada": "ada@now.example.com"}

    run(story())


def test_a_damaged_file_is_set_aside_and_alerts_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        (tmp_path / FILE).write_bytes(b"this is no database" * 1000)
        async with world(tmp_path, nodes=1) as it:
            use(it, tmp_path, FULL)
            await it.submit("wide", gpus=8, simulate="1h")
            await it.until_state("wide", "running")
            await look(it)
            assert await fired(it) == ["gpus-full"]
        assert list(tmp_path.glob(f"{FILE}.damaged-*"))

    run(story())
    assert "alerts-damaged" in capsys.readouterr().err


def test_alerts_are_told_when_the_file_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is when people most want to hear of it."""

    async def story() -> None:
        async with http_receiver() as receiver, world(tmp_path, nodes=1) as it:
            loop = use(it, tmp_path, settings(receiver.url))
            await look(it)
            assert loop._store is not None
            loop._store._db.execute("PRAGMA query_only=ON")  # SQLite refuses every write from now on
            await it.submit("wide", gpus=8, simulate="1h")
            await it.until_state("wide", "running")
            await look(it)
            await until(lambda: receiver.bodies)
            loop._store._db.execute("PRAGMA query_only=OFF")
            await look(it)
            assert [each.rule for each in loop._store.load().alerts.values() if each.fired_s] == ["gpus-full"]

    run(story())


def test_a_standby_evaluates_nothing_and_tells_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            loop = use(it, tmp_path, FULL)
            it.context.series.may_record = lambda: False
            loop.may_act = lambda: False
            await it.submit("wide", gpus=8, simulate="1h")
            await it.until_state("wide", "running")
            await asyncio.sleep(1.5)
            assert loop.evaluations == 0

    run(story())


def test_a_silence_needs_an_operator_and_is_in_the_audit(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            use(it, tmp_path, FULL)
            form: dict[str, Any] = {"rule": "gpus-*", "for_s": 600}
            viewer, operator = await token_for(it, "eve", "viewer"), await token_for(it, "oscar", "operator")
            refused = await it.client.post("/api/v1/alerts/silences", json=form, headers=bearer(viewer))
            assert refused.status_code == 403
            made = await it.client.post(
                "/api/v1/alerts/silences", json=form, headers=bearer(operator), params={"reason": "repair"}
            )
            assert made.status_code == 201
            await it.submit("wide", gpus=8, simulate="1h")
            await it.until_state("wide", "running")
            await look(it)
            (alert,) = (await it.get("/alerts")).json()["alerts"]
            assert alert["quiet"] == f"silence {made.json()['id']}"
            audited = (await it.get("/audit")).json()["items"]
            assert "repair" in [each["reason"] for each in audited if each["action"] == "silence-alerts"]
            assert (await it.delete(f"/alerts/silences/{made.json()['id']}")).status_code == 200
            assert (await it.get("/alerts/silences")).json()["items"] == []
            wrong = [{**form, "for_s": 0}, {**form, "rule": "*" * 9}, {"rule": "a"}, {**form, "more": 1}]
            assert [(await it.post("/alerts/silences", each)).status_code for each in wrong] == [400] * 4
            assert (await it.delete("/alerts/silences/999")).status_code == 404

    run(story())


def test_no_answer_of_the_api_shows_a_secret(tmp_path: Path) -> None:
    async def story() -> None:
        async with http_receiver() as receiver, world(tmp_path, nodes=1) as it:
            use(it, tmp_path, settings(receiver.url))
            await look(it)
            receiver.answers = [500]
            tested = await it.post("/alerts/channels/ops/test")
            assert tested.json()["problem"] == "HTTP status 500"
            shown = [tested.text] + [
                (await it.get(path)).text for path in ("/alerts", "/alerts/channels", "/alerts/rules", "/audit")
            ]
            assert SECRET not in "".join(shown) + await it.metrics()
            assert f"{receiver.url}/..." in shown[2]
            assert (await it.post("/alerts/channels/none/test")).status_code == 404

    run(story())


def test_a_wrong_file_stops_the_start_with_its_reason(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            with pytest.raises(ConfigError, match="cannot be read"):
                it.context.alerts.use_file(str(tmp_path / "none.yaml"))

    run(story())


def test_plugins_are_told_of_alerts(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            use(it, tmp_path, FULL)
            told: list[tuple[str, str]] = []
            it.context.alerts.notify = lambda notice: told.append((notice.code, notice.subject))
            await it.submit("wide", gpus=8, simulate="1h")
            await it.until_state("wide", "running")
            await look(it)
            await it.delete("/workloads/default/wide")
            await until(lambda: not it.loop.state.pods.get("default/wide"))
            await look(it)
            assert told == [("alert-firing", "gpus-full/cluster"), ("alert-resolved", "gpus-full/cluster")]

    run(story())


def test_what_is_pending_is_listed_with_what_was_seen(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            use(it, tmp_path, FULL.replace("keep: 0", "for: 1h, summary: '{value} held'"))
            await it.submit("wide", gpus=8, simulate="1h")
            await it.until_state("wide", "running")
            await look(it)
            (alert,) = (await it.get("/alerts")).json()["alerts"]
            assert (alert["state"], alert["summary"]) == ("pending", "100.0 % held")

    run(story())
