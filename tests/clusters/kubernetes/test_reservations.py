"""KaiwoReservations on a real API server: watched, honoured, their status written, and kept by the next leader."""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from kaiwo.clusters.kubernetes.decode.kaiwo_objects import RESERVATIONS, ReservationObject, read_reservation
from kaiwo.clusters.kubernetes.decode.wire_objects import Meta
from kaiwo.clusters.kubernetes.writers.reservation_status_writer import status_fields
from kaiwo.model.reservation import PhysicalDevice, Reservation, ReservationOwner
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, pod_path
from tests.clusters.kubernetes.test_scheduler import bound, scheduled
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run

ROOT = Path(__file__).parents[3]
CRD = ROOT / "deploy" / "crds" / "kaiwo.ai_kaiworeservations.yaml"


@pytest.fixture(scope="module")
def reserved(plane: Plane) -> Plane:
    """The server with the kind."""
    plane.kubectl("apply", "--server-side", "-f", str(CRD))
    name = yaml.safe_load(CRD.read_text())["metadata"]["name"]
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{name}")
    return plane


def moment(away_s: float) -> str:
    return datetime.fromtimestamp(time.time() + away_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def reserve(kubectl: Kubectl, name: str, **spec: Any) -> None:
    body = {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoReservation", "metadata": {"name": name}, "spec": spec}
    await kubectl.delete(f"{RESERVATIONS}/{name}")
    await kubectl.create(RESERVATIONS, body)


async def status(kubectl: Kubectl, name: str, phase: str, kept: int | None = None) -> Json:
    """The status, once it says so."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found: Json = (await kubectl.get(f"{RESERVATIONS}/{name}")).get("status", {})
            if found.get("phase") == phase and kept in (None, found.get("kept")):
                return found
            await asyncio.sleep(0.05)


async def sentence(kubectl: Kubectl, pod: str, words: str) -> None:
    """The pod's condition says so in the end."""
    async with asyncio.timeout(PATIENCE_S):
        while words not in (await kubectl.condition(pod)).get("message", ""):
            await asyncio.sleep(0.05)


async def gone(kubectl: Kubectl, pod: str) -> None:
    """The pod was told to go, and went: as its kubelet would let it."""
    async with asyncio.timeout(PATIENCE_S):
        while not (await kubectl.read_pod(pod))["metadata"].get("deletionTimestamp"):
            await asyncio.sleep(0.05)
    await kubectl.delete(pod_path(pod))


def test_a_reservation_begins_holds_and_ends_on_a_real_server(reserved: Plane, tmp_path: Path) -> None:
    async def story() -> None:
        async with scheduled(reserved, tmp_path, nodes=1, is_guarded=True) as (kubectl, _):  # users are checked
            for number in range(8):
                await kubectl.pod(f"filler-{number}")
            await bound(kubectl, 8)
            await reserve(kubectl, "night", gpus=8, owner={"user": "ada"}, start=moment(4), end=moment(16))
            pending = await status(kubectl, "night", "Pending", kept=8)
            assert {device["node"] for device in pending["devices"]} == {"node-1"}
            await status(kubectl, "night", "Active")
            for number in range(8):
                await gone(kubectl, f"filler-{number}")  # told to go by eviction
            await kubectl.pod("stranger")
            await sentence(kubectl, "stranger", "reservation 'night' keeps GPUs that it could use for user ada until")
            await kubectl.pod("hers", gpus=8, annotations={"kaiwo.ai/user": "ada"})
            (pod,) = await bound(kubectl, 1)
            assert pod["metadata"]["name"] == "hers"
            await status(kubectl, "night", "Expired")
            await kubectl.delete(pod_path("hers"))
            (pod,) = await bound(kubectl, 1)
            assert pod["metadata"]["name"] == "stranger"
            await kubectl.delete(f"{RESERVATIONS}/night")

    run(story())


def test_the_next_leader_keeps_the_place_and_writes_nothing_twice(reserved: Plane, tmp_path: Path) -> None:
    async def story() -> None:
        async with scheduled(reserved, tmp_path / "a", nodes=3) as (kubectl, _):
            await reserve(kubectl, "place", gpus=4, owner={"queue": "lab"})
            before = await status(kubectl, "place", "Active", kept=4)
        async with scheduled(reserved, tmp_path / "b", nodes=3) as (kubectl, kaiwo):
            after = await status(kubectl, "place", "Active", kept=4)
            assert after == before
            version = (await kubectl.get(f"{RESERVATIONS}/place"))["metadata"]["resourceVersion"]
            await asyncio.sleep(2.5)  # longer than the writer looks away
            assert (await kubectl.get(f"{RESERVATIONS}/place"))["metadata"]["resourceVersion"] == version
            assert [each.name for each in kaiwo.cluster.abilities.work.reservations()] == ["place"]
            await kubectl.delete(f"{RESERVATIONS}/place")

    run(story())


def test_an_allocation_that_expires_is_evicted_and_its_successor_told_so(reserved: Plane, tmp_path: Path) -> None:
    async def story() -> None:
        async with scheduled(reserved, tmp_path, nodes=1) as (kubectl, _):
            notes = {"kaiwo.ai/expires": moment(3)}
            await kubectl.pod("short", annotations=notes)
            await bound(kubectl, 1)
            await gone(kubectl, "short")
            await kubectl.pod("short", annotations=notes)  # as its controller would
            await sentence(kubectl, "short", "its allocation was granted until")

    run(story())


def test_an_object_is_read_like_a_file() -> None:
    item = ReservationObject(
        metadata=Meta(name="a", creation_timestamp="2026-01-31T18:00:00Z"),
        spec={"gpus": 2, "owner": {"queue": "lab"}},
        status={"devices": [{"node": "n", "gpu": "g"}, {"node": 7}, "spoilt"]},
    )
    assert read_reservation(item) == Reservation(
        "a", gpus=2, owner=ReservationOwner(queue="lab"), created_s=1_769_882_400, picked=(PhysicalDevice("n", "g"),)
    )
    item.spec = {"gpus": 2, "nodes": ["a"]}
    assert "exactly one of gpus" in str(read_reservation(item))


def test_the_status_says_phase_place_and_what_is_missing() -> None:
    found = Reservation(
        "a", gpus=3, picked=(PhysicalDevice("n", "g"),), start_s=100, owner=ReservationOwner(user="ada")
    )
    assert status_fields(found, 50) == {
        "phase": "Pending",
        "kept": 1,
        "devices": [{"node": "n", "gpu": "g"}],
        "message": "for user ada from second 100 of the cluster's clock without an end; "
        "2 of 3 GPUs are not available now",
    }


def test_a_reservation_that_cannot_be_read_says_so_and_stays_in_force(reserved: Plane, tmp_path: Path) -> None:
    """A key with too long a name, which no rule of the definition refuses."""
    key, words = "a/b" + "c" * 70, "nodeSelector"

    async def test() -> None:
        async with scheduled(reserved, tmp_path / "first") as (kubectl, _):
            await reserve(kubectl, "odd", gpus=1)
            await status(kubectl, "odd", "Active", 1)
            await kubectl.patch(f"{RESERVATIONS}/odd", {"spec": {"nodeSelector": {key: "c"}}})
            async with asyncio.timeout(PATIENCE_S):
                while "stays in force" not in (found := await status(kubectl, "odd", "Active", 1))["message"]:
                    await asyncio.sleep(0.05)
            assert words in found["message"]
            assert found["observedGeneration"] == 2
        async with scheduled(reserved, tmp_path / "second") as (kubectl, _):
            found = await status(kubectl, "odd", "Unreadable", 0)
            assert words in found["message"]
            await kubectl.pod("named", annotations={"kaiwo.ai/reservation": "odd"})
            await sentence(kubectl, "named", "its reservation 'odd' cannot be read")
            await kubectl.delete(f"{RESERVATIONS}/odd")

    run(test())
