"""People with tokens of their own, and what they ask of a running Kaiwo."""

from typing import Any

import httpx

from tests.api.world import World


async def token_for(kaiwo: World, name: str, role: str, *queues: str, **form: Any) -> dict[str, Any]:
    """A new token, as the API answers."""
    answer = await kaiwo.post("/tokens", {"name": name, "role": role, "queues": list(queues), **form})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def bearer(made: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {made['secret']}"}


class Person:
    """One person with a token; their requests carry it."""

    def __init__(self, kaiwo: World, made: dict[str, Any]) -> None:
        self.made, self.id, self.secret = made, made["token"]["id"], made["secret"]
        self.headers = bearer(made)
        self._kaiwo = kaiwo

    async def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Text goes as YAML."""
        if isinstance(body, str):
            headers = {**self.headers, "Content-Type": "application/yaml"}
            return await self._kaiwo.client.request(method, f"/api/v1{path}", content=body, headers=headers)
        return await self._kaiwo.client.request(method, f"/api/v1{path}", json=body, headers=self.headers)

    async def status(self, method: str, path: str, body: Any = None) -> int:
        return (await self.ask(method, path, body)).status_code

    async def submit(self, name: str, **fields: Any) -> httpx.Response:
        return await self.ask("POST", "/workloads", {"name": name, **fields})


async def person(kaiwo: World, name: str, role: str, *queues: str, **form: Any) -> Person:
    return Person(kaiwo, await token_for(kaiwo, name, role, *queues, **form))
