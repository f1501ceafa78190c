"""Lists and watches on a real API server, whole and broken."""

import asyncio

import pytest

from kaiwo.clusters.kubernetes.client import Client, mirror
from tests.controlplane.plane import Plane
from tests.kubernetes.speaking import client_for, following, notes_path, put_note, run, until
from tests.kubernetes.wire import line_to


async def _fill(client: Client, namespace: str, names: range) -> None:
    await asyncio.gather(*(put_note(client, namespace, f"n-{number:03d}") for number in names))


def test_a_list_longer_than_a_page_arrives_whole(plane: Plane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "PAGE", 7)

    async def test() -> None:
        async with client_for(plane.kubeconfig) as client:
            await _fill(client, namespace, range(40))
            async with following(client, namespace) as follower:
                assert sorted(follower.there) == [f"n-{number:03d}" for number in range(40)]

    run(test())


def test_changes_arrive_in_the_order_in_which_they_happened(plane: Plane, namespace: str) -> None:
    async def test() -> None:
        async with client_for(plane.kubeconfig) as client, following(client, namespace) as follower:
            for text in ("one", "two", "three"):
                await put_note(client, namespace, "a", text)
            await client.write("DELETE", notes_path(namespace, "a"))
            await until(lambda: len(follower.told) == 4, "four changes")
            assert follower.told == ["+a=one", "+a=two", "+a=three", "-a=three"]
            assert follower.there == {}

    run(test())


def test_a_watch_that_is_cut_goes_on_where_it_was(plane: Plane, namespace: str) -> None:
    async def test() -> None:
        async with line_to(plane) as line, client_for(plane.kubeconfig) as sure:
            shaky = plane.write_kubeconfig("admin", server=f"https://127.0.0.1:{line.port}")
            async with client_for(shaky) as client, following(client, namespace) as follower:
                plane.write_kubeconfig("admin")
                for number in range(10):
                    await put_note(sure, namespace, "a", str(number))
                    line.cut()
                await until(lambda: follower.there.get("a") == "9", "the last change")
                assert follower.told == [f"+a={number}" for number in range(10)]  # none lost, none twice
                assert follower.mirror.lists == 1

    run(test())


def test_a_server_that_has_forgotten_our_place_is_asked_for_everything_again(plane: Plane, namespace: str) -> None:
    """After a restart it remembers nothing from before, and answers 410 by itself."""

    async def test() -> None:
        async with client_for(plane.kubeconfig) as client, following(client, namespace) as follower:
            await put_note(client, namespace, "stays")
            await put_note(client, namespace, "goes")
            await until(lambda: len(follower.there) == 2)
            plane.kill("kube-apiserver")
            follower.mirror.version = "1"
            follower.there["a-ghost"] = ""
            await asyncio.to_thread(plane.start_api_server)
            await client.write("DELETE", notes_path(namespace, "goes"))
            await until(lambda: follower.mirror.lists == 2, "another list")
            await until(lambda: set(follower.there) == {"stays"}, "what is left")

    run(test())


def test_a_restarted_server_is_found_again(plane: Plane, namespace: str) -> None:
    async def test() -> None:
        async with client_for(plane.kubeconfig) as client, following(client, namespace) as follower:
            await put_note(client, namespace, "before")
            await until(lambda: "before" in follower.there)
            plane.kill("kube-apiserver")
            await asyncio.to_thread(plane.start_api_server)
            await put_note(client, namespace, "after")
            await until(lambda: {"before", "after"} <= follower.there.keys(), "the change after the restart")

    run(test())


def test_a_line_that_brings_nothing_for_long_is_opened_anew(
    plane: Plane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "SILENCE_S", 0.3)

    async def test() -> None:
        async with client_for(plane.kubeconfig) as client, following(client, namespace) as follower:
            await until(lambda: follower.mirror.watches >= 3, "three watches")
            await put_note(client, namespace, "a", "seen")
            await until(lambda: follower.there.get("a") == "seen")
            assert follower.mirror.lists == 1

    run(test())
