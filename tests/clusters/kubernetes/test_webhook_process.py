"""The webhooks' own process beside a real scheduler on the real API server: its end, its restart, and its floods."""

import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.webhooks import children, measure, review, started, until_leading, until_reviewed
from kaiwo.clusters.kubernetes.client import ApiError, Client
from kaiwo.clusters.kubernetes.client.kubeconfig import read_kubeconfig
from tests.clusters.kubernetes.installed_webhooks import Installed, installed
from tests.clusters.kubernetes.replicas import Replica
from tests.controlplane.plane import MissingError, Plane, find_programs, running_plane
from tests.waiting import is_in_time, run, until

FAIL = "--set=webhooks.failurePolicy=Fail"


@pytest.fixture(scope="module")
def site(plane: Plane) -> Iterator[Installed]:
    """With `Fail`, so that a review nobody answers is seen."""
    try:
        find_programs("helm")
    except MissingError as error:
        pytest.skip(str(error))
    with installed(plane, "t-process", FAIL) as found:
        yield found


def with_scheduler(
    site: Installed, home: Path, story: Callable[[Replica, Client], Coroutine[Any, Any, None]], *options: str
) -> None:
    async def test(kaiwo: Replica) -> None:
        client = Client(read_kubeconfig(site.plane.kubeconfig))
        try:
            await until(lambda: kaiwo.is_up, "the scheduler to start")
            await story(kaiwo, client)
        finally:
            await client.close()

    with started(site, home, *options) as kaiwo:
        run(test(kaiwo))


def is_gone(pid: int) -> bool:
    """Also no zombie."""
    return not Path(f"/proc/{pid}").exists()


def test_a_killed_process_is_restarted_and_scheduling_goes_on(site: Installed, tmp_path: Path) -> None:
    async def story(kaiwo: Replica, client: Client) -> None:
        await until_reviewed(client)
        await until_leading(kaiwo)
        assert kaiwo.metric("kaiwo_webhook_up") == 1
        for restarts in (1, 2):
            (child,) = children(kaiwo.process.pid)
            os.kill(child, signal.SIGKILL)
            await until(lambda child=child: is_gone(child), "it to be gone and waited for")
            await until(lambda n=restarts: kaiwo.metric("kaiwo_webhook_restarts_total") == n, "the restart to be said")
            await until_reviewed(client)
        assert kaiwo.ask("/readyz") == "ok\n"
        assert kaiwo.metric("kaiwo_leader") == 1
        ends = [line for line in kaiwo.log() if '"webhooks-ended"' in line]
        assert len(ends) == 2
        assert all("it was ended by SIGKILL" in line for line in ends)

    with_scheduler(site, tmp_path / "kaiwo", story)


def test_a_process_that_hangs_is_restarted(site: Installed, tmp_path: Path) -> None:
    async def story(kaiwo: Replica, client: Client) -> None:
        await until_reviewed(client)
        (child,) = children(kaiwo.process.pid)
        os.kill(child, signal.SIGSTOP)
        await until(lambda: is_gone(child), "it to be gone")
        await until_reviewed(client)
        assert any("it did not answer for 15 s" in line for line in kaiwo.log())

    with_scheduler(site, tmp_path / "kaiwo", story)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_its_scheduler(site: Installed, tmp_path: Path, number: signal.Signals) -> None:
    async def story(kaiwo: Replica, client: Client) -> None:
        await until_reviewed(client)
        (child,) = children(kaiwo.process.pid)
        kaiwo.signal(number)
        await until(lambda: kaiwo.process.poll() is not None, "the scheduler to end")
        await until(lambda: is_gone(child), "its process to end")
        assert not any("Traceback" in line for line in kaiwo.log())

    with_scheduler(site, tmp_path / "kaiwo", story)


def test_a_flood_neither_stops_the_loop_nor_takes_the_lease(site: Installed, tmp_path: Path) -> None:
    """Six bodies of 7.8 MB froze the event loop for 12.8 s. This flood took 1.2 GB, and its lag was above 0.5 s."""
    found = run(measure(site, tmp_path, 6.0, "127.0.0.2"))
    assert found["leader_changes"] == 0, found
    assert found["lease_gap_s"] < 5.0, found
    assert found["rss_mb"] < 400, found
    assert found["log_kb"] < 20, found
    assert found["reviews_answered"] > 0, found
    assert is_in_time(found["lag_p99_ms"] / 1000, 0.1), found


@pytest.mark.real
@pytest.mark.slow
def test_only_an_api_server_with_a_certificate_is_answered(tmp_path: Path) -> None:
    """As AdmissionConfiguration has it: the API server shows a client certificate to webhooks."""
    try:
        find_programs("helm")
    except MissingError as error:
        pytest.skip(str(error))
    folder = tmp_path / "plane"
    folder.mkdir()
    kinds = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    plugin = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration"}
    plugin["kubeConfigFile"] = str(folder / "webhooks.kubeconfig")
    config = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    (folder / "admission.yaml").write_text(
        yaml.safe_dump(config | {"plugins": [{"name": name, "configuration": plugin} for name in kinds]})
    )
    shown = {"client-certificate": str(folder / "admin.crt"), "client-key": str(folder / "admin.key")}
    users = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": shown}]}
    (folder / "webhooks.kubeconfig").write_text(yaml.safe_dump(users))
    ours = ("--webhook-client-ca", str(folder / "ca.crt"), "--webhook-client-name")

    async def answered(kaiwo: Replica, client: Client) -> None:
        await until_reviewed(client)

    async def refused(kaiwo: Replica, client: Client) -> None:
        await until(lambda: kaiwo.metric("kaiwo_webhook_up") == 1, "the webhooks to be served")
        for _ in range(3):
            with pytest.raises(ApiError):
                await review(client)
        await until(lambda: 'kaiwo_webhook_dropped_total{cause="client-name"}' in kaiwo.ask("/metrics"), "the metric")

    with (
        running_plane(folder, f"--admission-control-config-file={folder / 'admission.yaml'}") as plane,
        installed(plane, "t-client", FAIL) as site,
    ):
        with_scheduler(site, tmp_path / "yes", answered, *ours, "admin")
        with_scheduler(site, tmp_path / "no", refused, *ours, "somebody-else")
