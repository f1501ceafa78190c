"""Lists and watches on a real API server, whole and broken."""

import asyncio
import time

import msgspec
import pytest
from aiohttp import web

from kaiwo.clusters.kubernetes.client import Client, informer
from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.client.credentials import ClusterAccess, Credential, FixedCredential, Trust
from tests.clusters.kubernetes.api_client import client_for, following, notes_path, put_note
from tests.clusters.kubernetes.broken_server import line_to, server_that
from tests.controlplane.plane import Plane
from tests.waiting import is_in_time, run, until


async def _fill(client: Client, namespace: str, names: range) -> None:
    await asyncio.gather(*(put_note(client, namespace, f"n-{number:03d}") for number in names))


def test_a_list_longer_than_a_page_arrives_whole(plane: Plane, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "PAGE", 7)

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


@pytest.mark.parametrize("how", ["with a change", "without a change"])
def test_a_watch_that_is_cut_every_second_is_back_at_once(plane: Plane, namespace: str, how: str) -> None:
    """However often it was cut before: it worked until then, so there is nothing to be careful about."""

    async def test() -> None:
        async with line_to(plane) as line, client_for(plane.kubeconfig) as sure:
            shaky = plane.write_kubeconfig("admin", server=f"https://127.0.0.1:{line.port}")
            async with client_for(shaky) as client, following(client, namespace) as follower:
                plane.write_kubeconfig("admin")
                for number in range(8):
                    if how == "with a change":
                        await put_note(sure, namespace, "a", str(number))
                        await until(lambda number=number: follower.there.get("a") == str(number), "the change")
                    else:
                        await asyncio.sleep(informer.HEALTHY_WATCH_S)  # it stands, and there is nothing to tell
                    watches, cut_s = follower.mirror.watches, time.monotonic()
                    line.cut()
                    await until(lambda watches=watches: follower.mirror.watches > watches, "the next watch")
                    assert is_in_time(time.monotonic() - cut_s, 1), f"after cut {number + 1}"
                assert follower.mirror.lists == 1

    run(test())


def test_a_server_that_forgets_at_once_is_asked_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storm of 410: each answer means a whole list, which must not be made without a pause."""
    lists, pauses_s = 0, list[float]()

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" not in request.query:
            lists += 1
            return web.json_response({"metadata": {"resourceVersion": str(lists)}, "items": []})
        note = {"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": str(lists)}}}
        gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
        return web.Response(body=msgspec.json.encode(note) + b"\n" + msgspec.json.encode(gone) + b"\n")

    class Noted(Backoff):
        def next_s(self, at_least_s: float = 0) -> float:
            pauses_s.append(super().next_s(at_least_s))
            return 0

    monkeypatch.setattr(informer, "Backoff", Noted)

    async def test() -> None:
        async with server_that(answer) as address:
            client = Client(ClusterAccess(address, Trust(), FixedCredential(Credential())))
            try:
                async with following(client, "n"):
                    await until(lambda: lists >= 8, "some lists")
            finally:
                await client.close()
            assert pauses_s[5] > 1
            assert max(pauses_s) <= informer.LONGEST_PAUSE_S

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
    monkeypatch.setattr(informer, "SILENCE_S", 0.3)

    async def test() -> None:
        async with client_for(plane.kubeconfig) as client, following(client, namespace) as follower:
            await until(lambda: follower.mirror.watches >= 3, "three watches")
            await put_note(client, namespace, "a", "seen")
            await until(lambda: follower.there.get("a") == "seen")
            assert follower.mirror.lists == 1

    run(test())


def test_a_reader_that_breaks_gets_all_of_it_anew(plane: Plane, namespace: str) -> None:
    """A watch that ended in silence would never be missed."""

    async def test() -> None:
        async with client_for(plane.kubeconfig) as client, following(client, namespace) as follower:
            take, told = follower.on_changes, []

            def break_once(changes: object) -> None:
                follower.on_changes = take
                raise ValueError("no such thing")

            follower.on_changes = break_once
            follower.mirror._report = lambda event, **fields: told.append((event, fields["error"]))
            await put_note(client, namespace, "a", "one")
            await until(lambda: follower.there.get("a") == "one", "the list that follows")
            await put_note(client, namespace, "b", "two")
            await until(lambda: follower.there.get("b") == "two", "the watch that follows")
            assert (told, follower.mirror.lists) == ([("kubernetes-watch-failed", "no such thing")], 2)

    run(test())
