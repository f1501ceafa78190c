"""Damage to the files of time series, of the past and of alerts: scheduling goes on, and so does recording.

What is damaged is set aside under another name, so that nobody loses what may still be read in it.
"""

import contextlib
import random
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kaiwo.history.past import past_file
from kaiwo.history.series import series_file
from kaiwo.telemetry.alerts import alert_store
from tests.api.world import World, world
from tests.crash.faults import damage
from tests.waiting import run, until

SEED = 153
DAMAGES = 12
FILES = (series_file.FILE, past_file.FILE, alert_store.FILE)
RULE = (
    "rules:\n- {name: full, kind: ratio, of: cluster, measure: gpu_used_milli, over: gpu_milli, above: 90%, keep: 0}\n"
)


async def sample(it: World) -> None:
    """What the recorders do every ten seconds."""
    await it.context.series.sample(it.cluster.now_s())
    await it.context.past.flush_uses()


@contextlib.asynccontextmanager
async def watched(home: Path) -> AsyncIterator[World]:
    async with world(home, nodes=1) as it:
        (home / "alerts.yaml").write_text(RULE)
        it.context.alerts.use_file(str(home / "alerts.yaml"))
        yield it


async def full_and_empty(it: World, name: str) -> None:
    """Some work holds all GPUs and ends: a rule fires and is resolved."""
    await it.submit(name, gpus=8, simulate="1h", user="ada")
    await it.until_state(name, "running")
    await sample(it)
    await it.delete(f"/workloads/default/{name}")
    await until(lambda: not it.loop.state.pods.get(f"default/{name}"))
    await sample(it)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with something in all files, as a kill leaves it: with its write-ahead logs."""
    home, killed = tmp_path_factory.mktemp("living"), tmp_path_factory.mktemp("killed") / "home"

    async def story() -> None:
        async with watched(home) as it:
            for number in range(3):
                await full_and_empty(it, f"early-{number}")
            answer = await it.post("/alerts/silences", {"rule": "nothing-*", "subject": "*", "for_s": 3600})
            assert answer.status_code == 201
            shutil.copytree(home, killed, ignore=shutil.ignore_patterns("*.sock", "lock"))

    run(story())
    return killed


async def works(it: World) -> None:
    """Work starts and ends and is in all records; no answer is a bug, and what cannot be read names its file."""
    await full_and_empty(it, "late")
    now_s = it.cluster.now_s()
    series = {"kind": "cluster", "measure": "gpu_milli", "from": now_s - 600, "to": now_s + 600, "points": 1}
    for path, query in (
        ("/series", series), ("/series/subjects", {"kind": "gpu"}), ("/history", {}), ("/report", {}), ("/idle", {}),
        ("/alerts", {}), ("/alerts/history", {}), ("/alerts/silences", {}),
        ("/workloads/default/early-0/history", {}), ("/workloads/default/late/history", {}),
    ):  # fmt: skip
        answer = await it.get(path, **query)
        known = answer.status_code in (200, 404)
        assert known or answer.status_code == 503, (path, answer.text)
        assert known or any(file in answer.text for file in FILES), (path, answer.text)
    await full_and_empty(it, "later")  # what was found so far is set aside now
    assert (await it.get("/series", **series)).json()["series"][0]["values"] == [8000]
    found = (await it.get("/history")).json()["items"]
    assert "default/later" in {each["workload"] for each in found}, found
    told = (await it.get("/workloads/default/later/history")).json()["timeline"]
    assert [each["kind"] for each in told][-1] == "ended"
    assert "full" in {alert["rule"] for alert in (await it.get("/alerts/history")).json()["alerts"]}


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_whatever_is_damaged_before_the_start_work_and_recording_go_on(
    before: Path, tmp_path: Path, file: str, test_size: int
) -> None:
    for turn in range(DAMAGES * test_size):
        chance = random.Random(f"{SEED} {file} {turn}")
        home = tmp_path / f"home-{turn}"
        shutil.copytree(before, home)
        done = damage(home / (file + chance.choice(("", "", "-wal"))), chance)

        async def story(home: Path = home) -> None:
            async with watched(home) as it:
                await works(it)

        try:
            run(story())
        except BaseException as error:
            error.add_note(f"turn {turn}: {done}")
            raise
        shutil.rmtree(home)
