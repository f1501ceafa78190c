"""A tenant's flood, in a process of its own: python -m tests.clusters.kubernetes.tenant_flood KUBECONFIG FILE.

In:    a file with one JSON object a line: {"path", "body"} is created once; {"patch", "body"} is sent again and again,
       200 times a second in all, until the standard input is closed. `$N` in a patch is another number each time.
Out:   the line `made N` when everything was created.
"""

import asyncio
import contextlib
import sys
from itertools import count
from pathlib import Path

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client
from tests.clusters.kubernetes.api_client import client_for

AT_ONCE, EVERY_S = 16, 0.005


async def flood(kubeconfig: Path, lines: list[dict[str, object]]) -> None:
    async with client_for(kubeconfig) as client:
        limit = asyncio.Semaphore(AT_ONCE)
        created = [line for line in lines if "path" in line]
        await asyncio.gather(*(_create(client, limit, line) for line in created))
        print(f"made {len(created)}", flush=True)
        closed = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        patches = [line for line in lines if "patch" in line]
        running: set[asyncio.Task[None]] = set()
        for number in count():
            if closed.done():
                break
            if patches and len(running) < AT_ONCE:
                task = asyncio.create_task(_patch(client, patches[number % len(patches)], number))
                running.add(task)
                task.add_done_callback(running.discard)
            await asyncio.sleep(EVERY_S)
        await asyncio.gather(*running)


async def _create(client: Client, limit: asyncio.Semaphore, line: dict[str, object]) -> None:
    async with limit:
        await client.write("POST", str(line["path"]), msgspec.json.encode(line["body"]))


async def _patch(client: Client, line: dict[str, object], number: int) -> None:
    body = msgspec.json.encode(line["body"]).replace(b"$N", str(number).encode())
    with contextlib.suppress(ApiError):  # another writer was faster
        await client.patch(str(line["patch"]), body)


if __name__ == "__main__":
    text = Path(sys.argv[2]).read_text()
    asyncio.run(flood(Path(sys.argv[1]), [msgspec.json.decode(line) for line in text.splitlines()]))
