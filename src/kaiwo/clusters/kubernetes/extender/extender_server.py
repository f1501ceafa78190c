"""Answer kube-scheduler, which runs beside us on the same machine.

In:    POST /filter, /prioritize, /preempt, /bind.   Out: JSON as kube-scheduler reads it.
Never: listens to anybody but this machine: whoever may ask here may bind pods.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec
from aiohttp import web

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, PodDecoder
from kaiwo.clusters.kubernetes.decode.wire_objects import Pod
from kaiwo.clusters.kubernetes.extender.bind_pods import Binder, Chooser
from kaiwo.clusters.kubernetes.extender.messages import (
    TOP,
    Args,
    BindArgs,
    PreemptArgs,
    filtered,
    names_of,
    preempted,
    priorities,
    refused,
    victims_of,
)
from kaiwo.model.request import Request

HERE = "127.0.0.1"
MOST_BYTES = 256 << 20  # 5,000 whole nodes in one question
BEHIND_S = 0.05  # a watch and the loop behind it take less
STANDBY = "this Kaiwo does not lead yet"
Answer = dict[str, Any] | list[dict[str, Any]]


class Judge(Chooser, Protocol):
    """Knows what is free."""

    async def why_not(self, own: str, want: Request, nodes: Sequence[str]) -> dict[str, str]: ...

    async def scores(self, own: str, want: Request, nodes: Sequence[str], top: int) -> dict[str, int]: ...

    async def helped(self, own: str, want: Request, victims: dict[str, list[str]]) -> list[str]: ...


class Extender:
    """The server. `start` it; `close` it."""

    def __init__(
        self,
        judge: Judge,
        binder: Binder,
        name_of: Callable[[tuple[str, str]], str],
        may_answer: Callable[[], bool],
    ) -> None:
        self._judge, self._binder, self._name_of, self._may_answer = judge, binder, name_of, may_answer
        self._distillery = PodDecoder()
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.answers: Counter[str] = Counter()  # by verb

    async def start(self, port: int) -> None:
        app = web.Application(client_max_size=MOST_BYTES)
        for verb, answer in (
            ("filter", self._filter),
            ("prioritize", self._prioritize),
            ("preempt", self._preempt),
            ("bind", self._bind),
        ):
            app.router.add_post(f"/{verb}", self._door(verb, answer))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handle_signals=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, HERE, port).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _door(
        self, verb: str, answer: Callable[[bytes], Awaitable[Answer]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            self.answers[verb] += 1
            if not self._may_answer():
                return web.Response(status=503, text=STANDBY)
            try:
                found = await answer(await http.read())
            except msgspec.DecodeError as error:
                return web.Response(status=400, text=f"this is no question of kube-scheduler ({error})\n")
            return web.Response(body=msgspec.json.encode(found), content_type="application/json")

        return handle

    async def _filter(self, body: bytes) -> Answer:
        args = msgspec.json.decode(body, type=Args)
        pod = self._read(args.pod)
        if pod.spec.refusal:
            return refused(args, pod.spec.refusal)
        if not pod.spec.request.gpus:
            return filtered(args, {})
        names, own = names_of(args), self._name_of(pod.key)
        why_not = await self._judge.why_not(own, pod.spec.request, names)
        if len(why_not) == len(names):
            # kube-scheduler heard of a pod's end and asks at once. After a no to all it asks again only when something
            # else happens, so a no must not come from a watch that is a moment behind.
            await self._binder.catch_up(pod.nominated_node)
            await asyncio.sleep(BEHIND_S)
            why_not = await self._judge.why_not(own, pod.spec.request, names)
        return filtered(args, why_not)

    async def _prioritize(self, body: bytes) -> Answer:
        args = msgspec.json.decode(body, type=Args)
        pod, names = self._read(args.pod), names_of(args)
        if not pod.spec.request.gpus:
            return priorities(dict.fromkeys(names, 0))
        return priorities(await self._judge.scores(self._name_of(pod.key), pod.spec.request, names, TOP))

    async def _preempt(self, body: bytes) -> Answer:
        args = msgspec.json.decode(body, type=PreemptArgs)
        pod, victims = self._read(args.pod), victims_of(args)
        if not pod.spec.request.gpus:
            return preempted(victims, list(victims))
        uids = {node: [each.uid for each in who.pods or ()] for node, who in victims.items()}
        return preempted(victims, await self._judge.helped(self._name_of(pod.key), pod.spec.request, uids))

    async def _bind(self, body: bytes) -> Answer:
        args = msgspec.json.decode(body, type=BindArgs)
        return {"Error": await self._binder.bind(args.pod_namespace, args.pod_name, args.pod_uid, args.node)}

    def _read(self, pod: Pod) -> CachedPod:
        return self._distillery.decode(pod)
