"""The few words that tests of the client are written in."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kaiwo.clusters.kubernetes.client import Change, Client, Informer, Resource
from kaiwo.clusters.kubernetes.client.kubeconfig import read_kubeconfig
from kaiwo.clusters.kubernetes.decode.wire_objects import Meta
from tests.waiting import until

T = TypeVar("T")


class Note(msgspec.Struct, rename="camel"):
    """A ConfigMap: the cheapest object there is."""

    metadata: Meta
    data: dict[str, str] | None = None


@asynccontextmanager
async def client_for(kubeconfig: Path, **options: Any) -> AsyncIterator[Client]:
    client = Client(read_kubeconfig(kubeconfig), **options)
    try:
        yield client
    finally:
        await client.close()


def notes_path(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


async def put_note(client: Client, namespace: str, name: str, text: str = "") -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}
    await client.apply(notes_path(namespace, name), msgspec.json.encode(body), "test")


class CountingInformer(Informer):
    """Counts its watches."""

    watches = 0

    async def _read(self, content: Any) -> None:
        self.watches += 1
        await super()._read(content)


class Follower:
    """What a mirror tells, kept as a reader would."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.there: dict[str, str] = {}
        self.told: list[str] = []  # every change, in order
        self._coming: dict[str, str] = {}
        self.resource = Resource(notes_path(namespace), Note)
        self.is_listed = False
        self.mirror = CountingInformer(client, self)

    def on_list_start(self) -> None:
        self._coming = {}

    def on_page(self, items: Sequence[Note]) -> None:
        self._coming |= {item.metadata.name: (item.data or {}).get("text", "") for item in items}

    def on_list_end(self, version: str) -> None:
        self.there, self._coming = self._coming, {}

    def on_changes(self, changes: Sequence[Change[Note]]) -> None:
        for change in changes:
            name, text = change.object.metadata.name, (change.object.data or {}).get("text", "")
            self.told.append(f"{'-' if change.is_gone else '+'}{name}={text}")
            if change.is_gone:
                self.there.pop(name, None)
            else:
                self.there[name] = text


@asynccontextmanager
async def following(client: Client, namespace: str) -> AsyncIterator[Follower]:
    follower = Follower(client, namespace)
    task = asyncio.create_task(follower.mirror.run())
    try:
        await until(lambda: follower.mirror.lists and follower.mirror.watches, "the first list and watch")
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
