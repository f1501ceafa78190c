"""A real Alertmanager gets the alerts of a running Kaiwo: those that fire, and that they are resolved."""

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kaiwo.model.alerts.alert import Alert
from kaiwo.model.alerts.alert_rule import Severity
from kaiwo.model.alerts.channel import Channel, ChannelType
from kaiwo.telemetry.alerts.alert_store import Message, StoredMessage
from tests.api.world import world
from tests.runtime.alerting.test_alert_loop import FULL, look, use
from tests.runtime.alerting.test_delivery import delivering
from tests.waiting import run, until, wait_until

PROGRAM = next((path for name in ("prometheus-alertmanager", "alertmanager") if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no Alertmanager here (Debian: sudo apt-get install prometheus-alertmanager)"
)
CONFIG = "route: {receiver: none}\nreceivers: [{name: none}]\n"


class Alertmanager:
    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + "/api/v2" + path, timeout=30) as answer:
            return json.load(answer)

    def is_up(self) -> bool:
        try:
            return bool(self.ask("/status"))
        except OSError:
            return False

    def alerts(self) -> dict[str, Any]:
        return {each["labels"]["alertname"]: each for each in self.ask("/alerts")}


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    assert PROGRAM is not None
    (tmp_path / "alertmanager.yml").write_text(CONFIG)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        PROGRAM, f"--config.file={tmp_path / 'alertmanager.yml'}", f"--storage.path={tmp_path / 'data'}",
        f"--web.listen-address={address}", "--cluster.listen-address=",
    ]  # fmt: skip
    with (tmp_path / "alertmanager.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    found = Alertmanager(f"http://{address}")
    try:
        wait_until(found.is_up, "Alertmanager to answer")
        yield found
    finally:
        process.terminate()
        process.wait(30)


def test_it_gets_what_fires_hears_it_again_and_hears_that_it_is_resolved(
    tmp_path: Path, alertmanager: Alertmanager
) -> None:
    text = FULL.replace("keep: 0", "keep: 0, severity: critical, labels: {team: infra}, summary: '{value} held'")
    text += f"channels: [{{name: ops, type: alertmanager, url: '{alertmanager.url}'}}]\n"

    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            loop = use(it, tmp_path, text)
            await look(it)
            loop.channels["ops"].repeat_s = 0.2
            await it.submit("wide", gpus=8, simulate="1h")
            await it.until_state("wide", "running")
            await look(it)
            await until(lambda: "gpus-full" in alertmanager.alerts(), "the alert to arrive")
            found = alertmanager.alerts()["gpus-full"]
            assert found["labels"] == {
                "alertname": "gpus-full", "severity": "critical", "of": "cluster", "subject": "cluster",
                "source": "kaiwo", "team": "infra",
            }  # fmt: skip
            assert found["annotations"]["summary"] == "100.0 % held"
            assert found["status"]["state"] == "active"
            # It forgets what is not repeated: the time until which it remembers moves on.
            await until(lambda: alertmanager.alerts()["gpus-full"]["endsAt"] > found["endsAt"], "it to be repeated")
            assert alertmanager.alerts()["gpus-full"]["startsAt"] == found["startsAt"]
            assert len(alertmanager.ask("/alerts")) == 1
            await it.delete("/workloads/default/wide")
            await until(lambda: not it.loop.state.pods.get("default/wide"))
            await look(it)
            await until(lambda: "gpus-full" not in alertmanager.alerts(), "the alert to be resolved")

    run(story())


def test_what_fired_before_the_clock_was_set_back_is_taken_and_resolved(alertmanager: Alertmanager) -> None:
    async def story() -> None:
        alert, now_unix = Alert("gpu-hot", "gpu", "n/g", Severity.CRITICAL, 1, 1, fired_s=2), time.time()
        channel = Channel("ops", ChannelType.ALERTMANAGER, alertmanager.url)
        fires = Message("ops", alert, began_unix=now_unix + 3600)
        ends = Message("ops", alert, began_unix=now_unix + 3600, ended_unix=now_unix - 1)
        async with delivering(channel) as (delivery, taken):
            delivery.add([StoredMessage(1, now_unix, fires)])
            await until(lambda: taken.numbers == [1])
            assert alertmanager.alerts()["gpu-hot"]["status"]["state"] == "active"
            delivery.add([StoredMessage(2, now_unix, ends)])
            await until(lambda: taken.numbers == [1, 2])
            assert (delivery.status.delivered, delivery.status.failures) == (2, 0)
        assert alertmanager.alerts() == {}

    run(story())


def test_a_test_message_is_taken(tmp_path: Path, alertmanager: Alertmanager) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            use(it, tmp_path, f"channels: [{{name: ops, type: alertmanager, url: '{alertmanager.url}'}}]\n")
            await look(it)
            assert (await it.post("/alerts/channels/ops/test")).json()["problem"] == ""

    run(story())
