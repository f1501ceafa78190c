"""Agents of the chart report over TLS with the token of their pod, on a real API server that says whose it is."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import RunningScheduler, scheduling
from kaiwo.clusters.kubernetes.agent_tokens import AUDIENCE
from kaiwo.clusters.kubernetes.webhooks.certificate_secret import AUTHORITY
from kaiwo.devices.agent.report_stream import ReportStream, ReportTarget
from kaiwo.devices.agent_messages import MEDIA_TYPE, encode_line
from kaiwo.model.errors import ConfigError
from kaiwo.runtime.kubernetes.leadership import SingleReplica
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.installed_webhooks import CERTIFICATE_OF, Installed, installed
from tests.clusters.kubernetes.kubectl_cluster import Kubectl, pod_path
from tests.clusters.kubernetes.test_agents import HELLO, sample
from tests.controlplane.plane import MissingError, Plane, find_programs, free_ports
from tests.waiting import PATIENCE_S, is_in_time, run, until

NAMESPACE = "t-agent-reports"


class Listening(NamedTuple):
    kaiwo: RunningScheduler
    kubectl: Kubectl
    url: str
    ca_file: str


@pytest.fixture(scope="module")
def site(plane: Plane) -> Iterator[Installed]:
    try:
        find_programs("helm")
    except MissingError as error:
        pytest.skip(str(error))
    with installed(plane, NAMESPACE, "--set=agent.enabled=true") as found:
        yield found


@asynccontextmanager
async def listening(site: Installed, home: Path) -> AsyncIterator[Listening]:
    """The scheduler with the rights of its account, two nodes, and an agent's pod on each."""
    (port,) = free_ports(1)
    options = SchedulerOptions(
        str(home), port=0, kubeconfig=str(site.kubeconfig), lease_namespace=NAMESPACE, leader_elect=False,
        webhooks=CERTIFICATE_OF, webhook_port=site.port, host_names=("localhost",),
        agents="kaiwo-agents", agents_port=port, agent_account=f"{NAMESPACE}:kaiwo-agent",
    )  # fmt: skip
    async with client_for(site.plane.kubeconfig) as client:
        kubectl = Kubectl(client)
        await kubectl.clean()
        for number in (1, 2):
            await kubectl.node(f"node-{number}")
            await kubectl.pod(
                f"agent-{number}", gpus=0, namespace=NAMESPACE, nodeName=f"node-{number}",
                serviceAccountName="kaiwo-agent", schedulerName="default-scheduler",
            )  # fmt: skip
        async with scheduling(options) as kaiwo:
            trusted = await until_trusted(kubectl)
            (home / "ca.crt").write_text(trusted)
            yield Listening(kaiwo, kubectl, f"https://localhost:{port}", str(home / "ca.crt"))
        await kubectl.clean()


async def until_trusted(kubectl: Kubectl) -> str:
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/kaiwo-agents"
    async with asyncio.timeout(PATIENCE_S):
        while not (found := (await kubectl.get(path)).get("data") or {}):
            await asyncio.sleep(0.05)
    assert list(found) == [AUTHORITY]
    assert "PRIVATE" not in found[AUTHORITY]
    return str(found[AUTHORITY])


def token_of(plane: Plane, pod: str, audience: str = AUDIENCE, account: str = "kaiwo-agent") -> str:
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}") if pod else ()
    words = ("create", "token", account, f"--namespace={NAMESPACE}", f"--audience={audience}", *bound)
    return plane.kubectl(*words).strip()


async def answer_to(token: str, there: Listening, node: str = "node-1") -> tuple[int, dict[str, Any]]:
    trust = ssl.create_default_context(cafile=there.ca_file)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": MEDIA_TYPE}
    url = f"{there.url}/api/agents/{node}/reports"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=encode_line(HELLO), headers=headers, ssl=trust) as answer,
    ):
        return answer.status, await answer.json()


def test_the_agents_own_stream_is_heard_and_an_ill_gpu_gets_no_pod(site: Installed, tmp_path: Path) -> None:
    async def test() -> None:
        async with listening(site, tmp_path) as there:
            (tmp_path / "token-1").write_text(token_of(site.plane, "agent-1"))
            said: list[str] = []
            target = ReportTarget(there.url, "node-1", str(tmp_path / "token-1"), there.ca_file)
            stream = ReportStream(target, lambda: HELLO, said.append)
            stream.start()
            try:
                began = time.monotonic()
                stream.send(sample(1, "gpu-3"))
                node = there.kaiwo.cluster.cache.nodes
                await until(lambda: [gpu.id for gpu in node["node-1"].gpus if not gpu.healthy] == ["gpu-3"], str(said))
                assert is_in_time(time.monotonic() - began, 5)
            finally:
                await asyncio.to_thread(stream.close)
            await there.kubectl.pod("most", gpus=7, nodeSelector={"kubernetes.io/hostname": "node-1"})
            async with asyncio.timeout(PATIENCE_S):
                while not (await there.kubectl.get(pod_path("most")))["spec"].get("nodeName"):
                    await asyncio.sleep(0.05)
            devices = there.kaiwo.loop.state.pods["default/most"]["main-0"].devices
            assert "gpu-3" not in {share.gpu for share in devices}

    run(test())


def test_an_agent_speaks_for_its_own_node_and_nobody_else_speaks(site: Installed, tmp_path: Path) -> None:
    async def test() -> None:
        async with listening(site, tmp_path) as there:
            assert await answer_to(token_of(site.plane, "agent-1"), there) == (200, {"lines": 1})
            status, problem = await answer_to(token_of(site.plane, "agent-2"), there)
            assert (status, "belongs to the agent on 'node-2'" in problem["message"]) == (403, True), problem
            strangers = {
                "for another audience": token_of(site.plane, "agent-1", "https://kubernetes.default.svc"),
                "of no pod": token_of(site.plane, ""),
                "of another account": token_of(site.plane, "", account="kaiwo"),
                "of nobody": "abc.def.ghi",
                "one for all": there.kaiwo.context.access.agent_token,
            }
            for whose, token in strangers.items():
                assert (await answer_to(token, there))[0] in (401, 403), whose
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                async with aiohttp.ClientSession() as session:
                    await session.post(f"{there.url}/api/agents/node-1/reports")

    run(test())


def test_a_standby_sends_agents_on(site: Installed, tmp_path: Path) -> None:
    class Standby(SingleReplica):
        is_held = False

    async def test() -> None:
        async with listening(site, tmp_path) as there:
            there.kaiwo.context.leadership = Standby()
            status, problem = await answer_to(token_of(site.plane, "agent-1"), there)
            assert (status, "is a standby" in problem["message"]) == (503, True)

    run(test())


@pytest.mark.parametrize("missing", ["agents", "agent_account", "webhooks"])
def test_options_that_belong_together_are_asked_for_together(tmp_path: Path, missing: str) -> None:
    given = {"agents": "kaiwo-agents", "agent_account": "a:b", "webhooks": "kaiwo-webhooks"} | {missing: ""}

    async def test() -> None:
        async with scheduling(SchedulerOptions(str(tmp_path), **given)):
            pass

    with pytest.raises(ConfigError, match="--agents"):
        run(test())
