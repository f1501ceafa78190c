"""Serve the scheduler-extender protocol to a kube-scheduler on the same machine.

Listens on loopback only, and over TLS with a client certificate: any client that it answers may bind pods.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec
from aiohttp import web

from kaiwo.clusters.kubernetes.decode.pod_decoder import PodDecoder
from kaiwo.clusters.kubernetes.extender import messages
from kaiwo.clusters.kubernetes.extender.bind_pods import DeviceChooser, ExtenderBinder
from kaiwo.model.request import Request

LOOPBACK = "127.0.0.1"
MAX_BYTES = 256 << 20  # 5,000 whole nodes in one question
WATCH_LAG_S = 0.05  # a watch and the loop behind it take less
STANDBY = "this replica of Kaiwo does not lead"
Answer = dict[str, Any] | list[dict[str, Any]]


class GpuAnswers(DeviceChooser, Protocol):
    async def reasons_against(self, workload: str, request: Request, nodes: Sequence[str]) -> dict[str, str]: ...

    async def scores(self, workload: str, request: Request, nodes: Sequence[str], most: int) -> dict[str, int]: ...

    async def nodes_with_room_after(
        self, workload: str, request: Request, victims: dict[str, list[str]]
    ) -> list[str]: ...


class ExtenderServer:
    def __init__(
        self,
        gpus: GpuAnswers,
        binder: ExtenderBinder,
        name_of: Callable[[tuple[str, str]], str],
        may_answer: Callable[[], bool],
    ) -> None:
        self._gpus, self._binder, self._name_of, self._may_answer = gpus, binder, name_of, may_answer
        self._decode = PodDecoder().decode
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.answers: Counter[str] = Counter()  # by verb

    async def start(self, port: int, context: ssl.SSLContext) -> None:
        app = web.Application(client_max_size=MAX_BYTES)
        app.router.add_post("/filter", self._handler("filter", self._filter))
        app.router.add_post("/prioritize", self._handler("prioritize", self._prioritize))
        app.router.add_post("/preempt", self._handler("preempt", self._preempt))
        app.router.add_post("/bind", self._handler("bind", self._bind))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handle_signals=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, port, ssl_context=context).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _handler(
        self, verb: str, answer: Callable[[bytes], Awaitable[Answer]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            self.answers[verb] += 1
            if not self._may_answer():
                return web.Response(status=503, text=STANDBY)
            try:
                found = await answer(await http.read())
            except msgspec.DecodeError as error:
                return web.Response(status=400, text=f"this is not a request of kube-scheduler ({error})\n")
            return web.Response(body=msgspec.json.encode(found), content_type="application/json")

        return handle

    async def _filter(self, body: bytes) -> Answer:
        args = msgspec.json.decode(body, type=messages.FilterArgs)
        pod = self._decode(args.pod)
        if pod.spec.refusal:
            return messages.refused(args, pod.spec.refusal)
        if not pod.spec.request.gpus:
            return messages.filtered(args, {})
        names, workload = messages.names_of(args), self._name_of(pod.key)
        reasons = await self._gpus.reasons_against(workload, pod.spec.request, names)
        if len(reasons) == len(names):
            # kube-scheduler asks at once when a pod ends. When every node is refused it asks again only after another
            # event, so a refusal must not come from a watch that lags a moment behind.
            await self._binder.refresh_node(pod.nominated_node)
            await asyncio.sleep(WATCH_LAG_S)
            reasons = await self._gpus.reasons_against(workload, pod.spec.request, names)
        return messages.filtered(args, reasons)

    async def _prioritize(self, body: bytes) -> Answer:
        args = msgspec.json.decode(body, type=messages.FilterArgs)
        pod, names = self._decode(args.pod), messages.names_of(args)
        if not pod.spec.request.gpus:
            return messages.priorities(dict.fromkeys(names, 0))
        workload = self._name_of(pod.key)
        return messages.priorities(await self._gpus.scores(workload, pod.spec.request, names, messages.MAX_SCORE))

    async def _preempt(self, body: bytes) -> Answer:
        args = msgspec.json.decode(body, type=messages.PreemptArgs)
        pod, victims = self._decode(args.pod), messages.victims_of(args)
        if not pod.spec.request.gpus:
            return messages.preempted(victims, list(victims))
        uids = {node: [each.uid for each in gone.pods or ()] for node, gone in victims.items()}
        nodes = await self._gpus.nodes_with_room_after(self._name_of(pod.key), pod.spec.request, uids)
        if not nodes:  # as for a filter that refuses every node
            await self._binder.refresh_node(pod.nominated_node)
            await asyncio.sleep(WATCH_LAG_S)
            nodes = await self._gpus.nodes_with_room_after(self._name_of(pod.key), pod.spec.request, uids)
        return messages.preempted(victims, nodes)

    async def _bind(self, body: bytes) -> Answer:
        args = msgspec.json.decode(body, type=messages.BindArgs)
        return {"Error": await self._binder.bind(args.pod_namespace, args.pod_name, args.pod_uid, args.node)}
