"""Signed grants on the real API server: made with the Binding, verified as an agent does, renewed, and never forged."""

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import scheduling
from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, write_grant
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.grants.key_rotation import GrantKeyRotation, GrantKeySite
from kaiwo.clusters.kubernetes.grants.key_set import KeySet
from kaiwo.devices.agent.kubelet.bound_pods import ApiPodLister
from kaiwo.devices.agent.kubelet.grant_verifier import GrantVerifier
from kaiwo.devices.agent.kubelet.kubernetes_api import KubernetesApi
from kaiwo.model.errors import ConfigError
from kaiwo.model.grant_signature import KEYS_FIELD, SIGNATURE_ANNOTATION
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, Scene, opened_here, pod_path, start_of, whole
from tests.clusters.kubernetes.running_scheduler import until_bound
from tests.clusters.kubernetes.test_scheduler import prepared
from tests.controlplane.plane import TOKEN, Plane
from tests.waiting import run, until, until_answer

SITE = GrantKeySite("kaiwo-grants", "default")


@pytest.fixture
def account(plane: Plane, tmp_path: Path) -> KubernetesApi:
    """What an agent speaks with."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text(TOKEN)
    shutil.copy(plane.folder / "ca.crt", folder)
    return KubernetesApi(plane.server, str(folder))


@asynccontextmanager
async def installed(plane: Plane, nodes: int = 1) -> AsyncIterator[Kubectl]:
    """What the chart creates: an empty Secret and an empty ConfigMap."""
    async with prepared(plane, nodes) as kubectl:
        for kind, path in (("Secret", SITE.secret), ("ConfigMap", SITE.config_map)):
            await kubectl.delete(path)
            await kubectl.create(path.rpartition("/")[0], {"kind": kind, "metadata": {"name": SITE.name}})
        yield kubectl
        await kubectl.clean()


def options(plane: Plane, home: Path, **more: Any) -> SchedulerOptions:
    return SchedulerOptions(
        str(home), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=False, lease_namespace="default", **more
    )


def honoured(api: KubernetesApi, node: str = "node-1") -> set[str]:
    """The pods of a node whose grants its agent honours."""
    verifier = GrantVerifier(api, "default/kaiwo-grants", node, ["kaiwo-scheduler"])
    pods = verifier.checked(ApiPodLister(api, node).bound(True), {})
    return {pod.name for pod in pods if pod.assigned and not pod.refusal}


async def published(kubectl: Kubectl) -> dict[str, str]:
    text = ((await kubectl.get(SITE.config_map)).get("data") or {}).get(KEYS_FIELD, "{}")
    return msgspec.json.decode(text, type=dict[str, str])


async def until_published(kubectl: Kubectl, count: int = 1) -> dict[str, str]:
    return await until_answer(lambda: published(kubectl), lambda keys: len(keys) == count, "the public keys")


def forged(*gpus: int, **more: str) -> dict[str, str]:
    return {GRANT_ANNOTATION: write_grant(whole(*gpus)), **more}


async def events_on(kubectl: Kubectl, name: str, reason: str) -> list[Json]:
    query = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name},reason={reason}"
    return (await kubectl.get(query))["items"]


def test_a_binding_carries_a_signature_that_its_agent_honours_and_no_forged_one_is(
    plane: Plane, account: KubernetesApi, tmp_path: Path
) -> None:
    async def test() -> None:
        async with installed(plane) as kubectl, scheduling(options(plane, tmp_path, grant_keys=SITE.name)):
            await until_published(kubectl)
            await kubectl.pod("honest", gpus=2)
            pod = await until_bound(kubectl, "honest")
            signature = pod["metadata"]["annotations"][SIGNATURE_ANNOTATION]
            await kubectl.pod("unsigned", nodeName="node-1", annotations=forged(0))
            await kubectl.pod("copied", nodeName="node-1", annotations=forged(0, **{SIGNATURE_ANNOTATION: signature}))
            await kubectl.pod("later", gpus=0, nodeName="node-1")
            await kubectl.patch(pod_path("later"), {"metadata": {"annotations": forged(0)}})
            await kubectl.pod("other", nodeName="node-1", schedulerName="default-scheduler", annotations=forged(0))
            assert await asyncio.to_thread(honoured, account) == {"honest"}
            secret = (await kubectl.get(SITE.secret))["data"][KEYS_FIELD]
            keys = msgspec.json.decode(base64.b64decode(secret), type=KeySet)
            assert keys.current is not None
            assert keys.current.seed not in str(await kubectl.get(SITE.config_map))

    run(test())


def test_a_forged_grant_takes_no_device_from_others(plane: Plane, tmp_path: Path) -> None:
    """All eight devices of the only node, on a pod that asks for none: without signatures, nobody else could start."""

    async def test() -> None:
        async with installed(plane) as kubectl, scheduling(options(plane, tmp_path, grant_keys=SITE.name)):
            await until_published(kubectl)
            await kubectl.pod("forged", gpus=0, nodeName="node-1", annotations=forged(*range(8)))
            await kubectl.pod("honest", gpus=8)
            await until_bound(kubectl, "honest")

    run(test())


def test_pods_from_before_the_upgrade_are_signed_unless_they_claim_what_another_holds(
    plane: Plane, account: KubernetesApi, tmp_path: Path
) -> None:
    async def test() -> None:
        async with installed(plane) as kubectl:
            async with scheduling(options(plane, tmp_path / "before")):
                for name in ("first", "second"):
                    await kubectl.pod(name, gpus=2)
                    await until_bound(kubectl, name)
                taken = msgspec.json.decode(
                    (await kubectl.read_pod("first"))["metadata"]["annotations"][GRANT_ANNOTATION]
                )
            number = int(taken[0]["gpu"].removeprefix("gpu-"))
            created = datetime.fromisoformat((await kubectl.read_pod("second"))["metadata"]["creationTimestamp"])
            await until(lambda: datetime.now(UTC) - created > timedelta(seconds=1), "another second")
            await kubectl.pod("thief", gpus=1, nodeName="node-1", annotations=forged(number))
            assert await asyncio.to_thread(honoured, account) == {"first", "second", "thief"}  # no key yet: as before
            async with scheduling(options(plane, tmp_path / "after", grant_keys=SITE.name)):
                await until_published(kubectl)
                assert await asyncio.to_thread(honoured, account) == {"first", "second"}
                (event,) = await until_answer(lambda: events_on(kubectl, "thief", "GrantRefused"), bool, "the Event")
                assert "default/first" in event["message"]
                await kubectl.pod("late", gpus=1, nodeName="node-1", annotations=forged(7))
            # The next start signs nothing that is not signed.
            async with scheduling(options(plane, tmp_path / "again", grant_keys=SITE.name)):
                await kubectl.pod("third")
                await until_bound(kubectl, "third")
                assert await asyncio.to_thread(honoured, account) == {"first", "second", "third"}

    run(test())


def test_a_new_key_signs_what_runs_before_the_former_one_is_dropped(plane: Plane, account: KubernetesApi) -> None:
    async def test() -> None:
        async with installed(plane) as kubectl, opened_here(plane, kubectl) as scene:
            now_s = [1000]
            keys = rotation(scene, lambda: now_s[0])
            await keys.load()
            await keys.before_leading()
            assert await published(kubectl) == {}  # agents ask for no signature before the pods have theirs
            await keys.maintain()
            (old,) = await published(kubectl)
            await kubectl.pod("train")
            await scene.until_waiting("train")
            await scene.start(start_of("train"))
            await scene.until(lambda: scene.cluster.cache.pods[("default", "train")].node, "the Binding")
            now_s[0] += 100
            await keys.before_leading()
            assert old in (both := await published(kubectl))
            assert len(both) == 2
            assert await asyncio.to_thread(honoured, account) == {"train"}
            await keys.maintain()
            await scene.until(lambda: not is_signed_with(scene, "train", old), "the new signature")
            await keys.maintain()
            assert old not in await published(kubectl)
            assert await asyncio.to_thread(honoured, account) == {"train"}

    run(test())


def rotation(scene: Scene, now_s: Any) -> GrantKeyRotation:
    def refuse(pod: CachedPod, reason: str, sentence: str) -> None:
        raise AssertionError(sentence)

    cluster = scene.cluster
    return GrantKeyRotation(cluster.client, cluster.cache, SITE, refuse, lambda *_, **__: None, now_s, life_s=100)


def is_signed_with(scene: Scene, name: str, key: str) -> bool:
    return key in scene.cluster.cache.pods[("default", name)].annotation(SIGNATURE_ANNOTATION)


def test_without_the_secret_the_scheduler_says_what_to_do(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with prepared(plane, 1):
            with pytest.raises(ConfigError, match=r"default/none, or remove --grant-keys"):
                async with scheduling(options(plane, tmp_path, grant_keys="none")):
                    pass

    run(test())


def test_a_correction_of_an_agent_is_signed_for_its_own_node_only(
    plane: Plane, account: KubernetesApi, tmp_path: Path
) -> None:
    async def test() -> None:
        async with (
            installed(plane, nodes=2) as kubectl,
            scheduling(options(plane, tmp_path, grant_keys=SITE.name)) as kaiwo,
        ):
            await until_published(kubectl)
            await kubectl.pod("train", nodeSelector={"kubernetes.io/hostname": "node-1"})
            pod = await until_bound(kubectl, "train")
            where, uid = ("default", "train"), pod["metadata"]["uid"]
            known = kaiwo.cluster.cache.pods
            await until(lambda: known[where].node, "the watch")
            with pytest.raises(Exception, match="is not on node-2"):
                await kaiwo.cluster.correct_devices("node-2", where, uid, whole(7))
            await kaiwo.cluster.correct_devices("node-1", where, uid, whole(7))
            assert '"gpu-7"' in (await kubectl.read_pod("train"))["metadata"]["annotations"][GRANT_ANNOTATION]
            assert await asyncio.to_thread(honoured, account) == {"train"}

    run(test())
