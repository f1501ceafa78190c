"""What is said about a pod gets through, also when the server is not well."""

import asyncio
from collections import Counter

from aiohttp import web

from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.client.access import Access, Credential, Fixed, Trust
from kaiwo.clusters.kubernetes.voice import Voice
from tests.kubernetes.making import seen_pod, some_books
from tests.kubernetes.speaking import run, until
from tests.kubernetes.wire import server_that

TROUBLE = 5


def test_a_sentence_that_a_server_in_trouble_refused_is_said_again() -> None:
    asked: Counter[str] = Counter()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked[request.method] += 1
        is_well = request.method != "PATCH" or asked["PATCH"] > TROUBLE
        return web.json_response({}, status=200 if is_well else 500)

    async def test() -> None:
        async with server_that(answer) as address:
            client, books = Client(Access(address, Trust(), Fixed(Credential()))), some_books()
            voice = Voice(client, books, lambda: 0)
            voice.start()
            try:
                # A gate that is gone: the server's own word stays on the pod until ours replaces it.
                books.put_pod(seen_pod("a", annotations={"kaiwo.ai/gang": "g", "kaiwo.ai/gang-size": "2"}))
                books.settle()
                voice.listen()
                await until(lambda: asked["POST"], "the Event that comes after the condition")
                assert asked["PATCH"] == TROUBLE + 1
            finally:
                await voice.close()
                await client.close()
                await asyncio.sleep(0)

    run(test())
