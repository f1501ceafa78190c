"""Calls that must survive a busy, slow or odd server. A healthy API server cannot be made to answer like this."""

import asyncio
import time

import msgspec
import pytest
from aiohttp import web

from kaiwo.clusters.kubernetes.client import ApiError, Client, ClusterAccess, Credential, Resource, UnreachableError
from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.client.credentials import FixedCredential, Trust
from tests.clusters.kubernetes.api_client import Note, client_for, notes_path, put_note
from tests.clusters.kubernetes.broken_server import server_that
from tests.controlplane.plane import Plane
from tests.waiting import run


def _status(code: int, reason: str, message: str = "", retry_after: str = "") -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    headers = {"Retry-After": retry_after} if retry_after else {}
    return web.json_response(body, status=code, headers=headers)


def _client(address: str, **options: int) -> Client:
    return Client(ClusterAccess(address, Trust(), FixedCredential(Credential())), **options)


def test_a_busy_server_is_asked_again_when_it_said() -> None:
    async def test() -> None:
        asked: list[float] = []

        async def answer(request: web.BaseRequest) -> web.Response:
            asked.append(time.monotonic())
            return _status(429, "TooManyRequests", retry_after="1") if len(asked) == 1 else web.Response(body=b"{}")

        async with server_that(answer) as address:
            client = _client(address)
            assert await client.read("/x") == b"{}"
            await client.close()
        assert asked[1] - asked[0] >= 1

    run(test())


def test_a_call_that_is_refused_for_good_is_not_repeated() -> None:
    async def test() -> None:
        asked: list[str] = []

        async def answer(request: web.BaseRequest) -> web.Response:
            asked.append(request.path)
            return _status(403, "Forbidden", "no, you may not")

        async with server_that(answer) as address:
            client = _client(address)
            with pytest.raises(ApiError, match="POST /x: no, you may not") as refused:
                await client.write("POST", "/x", b"{}")
            await client.close()
        assert (len(asked), refused.value.code, refused.value.is_transient) == (1, 403, False)

    run(test())


def test_tries_come_to_an_end() -> None:
    async def test() -> None:
        asked: list[str] = []

        async def answer(request: web.BaseRequest) -> web.Response:
            asked.append(request.path)
            return web.Response(status=503, text="not now")

        async with server_that(answer) as address:
            client = _client(address)
            with pytest.raises(ApiError, match="not now"):
                await client.read("/x", tries=3)
            await client.close()
        assert len(asked) == 3

    run(test())


def test_a_server_that_does_not_answer_is_not_waited_for_without_an_end() -> None:
    async def test() -> None:
        async def never(request: web.BaseRequest) -> web.Response:
            await asyncio.sleep(60)
            raise AssertionError

        async with server_that(never) as address:
            client = _client(address)
            with pytest.raises(UnreachableError, match="GET /x: no answer in time"):
                await client.read("/x", timeout_s=0.2, tries=1)
            await client.close()

    run(test())


def test_no_more_writes_at_once_than_allowed() -> None:
    async def test() -> None:
        now = most = 0

        async def answer(request: web.BaseRequest) -> web.Response:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.01)
            now -= 1
            return web.Response(body=b"{}")

        async with server_that(answer) as address:
            client = _client(address, writes=5)
            await asyncio.gather(*(client.write("POST", "/x", b"{}") for _ in range(50)))
            await client.close()
        assert most == 5

    run(test())


def test_pauses_grow_with_jitter_up_to_a_bound() -> None:
    backoff = Backoff(first_s=1, longest_s=8)
    pauses = [backoff.next_s() for _ in range(6)]
    assert all(most / 2 <= pause <= most for most, pause in zip((1, 2, 4, 8, 8, 8), pauses, strict=True))
    assert backoff.next_s(at_least_s=20) == 20
    backoff.reset()
    assert backoff.next_s() <= 1
    assert len({Backoff(1, 8).next_s() for _ in range(20)}) > 1


def test_apply_owns_its_fields_and_leaves_the_others(plane: Plane, namespace: str) -> None:
    async def test() -> None:
        async with client_for(plane.kubeconfig) as client:
            await put_note(client, namespace, "a", "ours")
            await client.patch(notes_path(namespace, "a"), b'{"data": {"theirs": "too"}}')
            await put_note(client, namespace, "a", "ours again")
            note = msgspec.json.decode(await client.read(notes_path(namespace, "a")), type=Note)
            assert note.data == {"text": "ours again", "theirs": "too"}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"theirs": "mine"}}
            with pytest.raises(ApiError, match="conflict") as refused:
                await client.apply(notes_path(namespace, "a"), msgspec.json.encode(body), "other", force=False)
            assert refused.value.is_conflict

    run(test())


def test_one_object_that_cannot_be_read_does_not_take_the_others_with_it() -> None:
    resource = Resource("/x", Note)
    reported: list[str] = []
    resource.report = lambda *_, error, **__: reported.append(error)
    good, bad = '{"metadata": {"name": "a"}}', '{"metadata": {"name": 3}}'
    page = resource.read_page(f'{{"metadata": {{"resourceVersion": "7"}}, "items": [{good}, {bad}]}}'.encode())
    assert ([item.metadata.name for item in page.items or ()], page.metadata.resource_version) == (["a"], "7")
    assert resource.unreadable == 1
    assert resource.read_line(f'{{"type": "ADDED", "object": {bad}}}'.encode()) is None
    assert resource.unreadable == 2
    assert "Expected `str`, got `int`" in reported[-1]
