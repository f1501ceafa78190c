"""The API answers under the names of its Service, and under no other."""

from pathlib import Path

import aiohttp
from click.testing import CliRunner

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import scheduling
from kaiwo.cli.verb_table import kaiwo as program
from tests.controlplane.plane import Plane
from tests.waiting import run

NAME = "kaiwo.kaiwo-system.svc"


def test_a_service_reaches_it_by_name(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        options = SchedulerOptions(
            str(tmp_path), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=False, host_names=(NAME,)
        )
        async with scheduling(options) as kaiwo, aiohttp.ClientSession(kaiwo.url) as session:
            for host, status in ((f"{NAME}:7600", 200), ("KAIWO.kaiwo-system.svc", 200), ("evil.example", 421)):
                async with session.get("/healthz", headers={"Host": host}) as answer:
                    assert answer.status == status, host

    run(test())


def test_what_is_no_name_is_refused() -> None:
    done = CliRunner().invoke(program, ["scheduler", "--host-name", "http://kaiwo"])
    assert done.exit_code == 2
    assert "is not a host name; write it like kaiwo.kaiwo-system.svc" in done.output
