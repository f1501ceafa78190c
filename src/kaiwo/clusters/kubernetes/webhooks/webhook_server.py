"""Answer the reviews of the API server: the webhooks' paths, what is asked for each, and what is counted.

A review of a workload makes no API call, unless a trusted controller made the object. A review of a queue, which is
rare, reads the current queues, since a parent and its child may be created right after one another.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import QUEUES, QueueObject
from kaiwo.clusters.kubernetes.decode.wire_objects import Wire
from kaiwo.clusters.kubernetes.webhooks.admission_review import (
    ALLOWED,
    AdmissionRequest,
    AdmissionVerdict,
    is_absent,
    read_review,
    write_review,
)
from kaiwo.clusters.kubernetes.webhooks.connection_limits import ServerLimits
from kaiwo.clusters.kubernetes.webhooks.http_request import RefusedRequestError
from kaiwo.clusters.kubernetes.webhooks.http_server import BoundedHttpServer
from kaiwo.clusters.kubernetes.webhooks.owner_lookup import OwnerLookup
from kaiwo.clusters.kubernetes.webhooks.request_counts import RequestCounts
from kaiwo.clusters.kubernetes.webhooks.review_queue import read_queues, review_queue
from kaiwo.clusters.kubernetes.webhooks.review_workload import review_workload
from kaiwo.clusters.kubernetes.webhooks.submitting_user import WebhookPolicy
from kaiwo.clusters.kubernetes.webhooks.workload_objects import read_workload_object
from kaiwo.model.errors import ConfigError
from kaiwo.model.queue import Queue

SHUTDOWN_S = 2.0
LIMITS = ServerLimits()
PATHS = frozenset(("/work", "/invited", "/queues"))
TOO_DEEP = AdmissionVerdict("the object is nested too deeply to be reviewed; flatten it", reason="depth")


class SchedulerState(Protocol):
    """What the scheduler knows and reviews need."""

    @property
    def queues(self) -> Mapping[str, Queue]: ...

    async def living(self) -> Mapping[str, int]:
        """How many workloads each queue has."""


class _Queues(Wire):
    items: list[QueueObject]


class WebhookServer:
    def __init__(
        self,
        client: Client,
        state: SchedulerState,
        policy: WebhookPolicy,
        report: Callable[..., None],
        limits: ServerLimits = LIMITS,
    ) -> None:
        self._client, self._state, self._policy, self._report = client, state, policy, report
        self._owners = OwnerLookup(client)
        self._next_queues: asyncio.Task[Mapping[str, Queue]] | None = None
        self._reading = asyncio.Lock()
        self.http = BoundedHttpServer(PATHS, self.answer, limits)
        self.counts = RequestCounts()

    def start(
        self, listener: socket.socket, context: ssl.SSLContext | None, client_names: frozenset[str] = frozenset()
    ) -> None:
        self.http.start(listener, context, client_names)

    async def close(self) -> None:
        await self.http.close(SHUTDOWN_S)

    async def answer(self, path: str, body: bytes) -> bytes:
        endpoint, began = path.removeprefix("/"), time.perf_counter()
        try:
            request = read_review(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedRequestError(400, f"this is not an AdmissionReview ({error})") from error
        try:
            verdict = await self._review(endpoint, request)
            answer = "refused" if verdict.refusal else "changed" if verdict.patch else "passed"
        except RecursionError:
            verdict, answer = TOO_DEEP, "refused"
        except ConfigError as error:  # it cannot be read as work at all
            verdict, answer = AdmissionVerdict(str(error), reason="unreadable"), "refused"
        except Exception as error:  # a bug here must not stop the cluster: count it, log it, and allow the object
            self._report("webhook-broken", level="error", kind=request.kind.kind, error=repr(error)[:500])
            verdict, answer = ALLOWED, "broken"
        self.counts.count(endpoint, answer, verdict.reason, time.perf_counter() - began)
        return write_review(request.uid, verdict)

    async def _review(self, endpoint: str, request: AdmissionRequest) -> AdmissionVerdict:
        if endpoint == "queues":
            return review_queue(request, await self.read_queues(), await self._state.living())
        policy = self._policy
        if request.user_info.is_trusted_controller(policy) and not await self._has_owner(request):
            policy = policy._replace(trusted_controllers=frozenset())  # nobody reviewed what it was made for
        return review_workload(request, self._state.queues, policy, endpoint == "invited")

    async def _has_owner(self, request: AdmissionRequest) -> bool:
        raw = request.old_object if is_absent(request.object) else request.object
        work = read_workload_object(bytes(raw), request.kind.kind, request.kind.group, request.namespace)
        return bool(work.controller) and await self._owners.exists(request.namespace, work.controller)

    async def read_queues(self) -> Mapping[str, Queue]:
        """The queues as of now. Reviews that wait for the same moment share one read, so a flood reads one by one."""
        if self._next_queues is None:
            self._next_queues = asyncio.create_task(self._read_next())
        return await asyncio.shield(self._next_queues)

    async def _read_next(self) -> Mapping[str, Queue]:
        async with self._reading:
            self._next_queues = None  # who asks from here on may know of a newer queue
            return await self._read_queues()

    async def _read_queues(self) -> Mapping[str, Queue]:
        """As we last heard of them if the API server that asks does not answer."""
        try:
            async with asyncio.timeout(3):
                listed = msgspec.json.decode(await self._client.read(QUEUES, tries=1), type=_Queues)
        except (ApiError, UnreachableError, TimeoutError) as error:
            self._report("queues-not-read", level="warning", error=str(error)[:300])
            return self._state.queues
        return read_queues(listed.items)
