"""A plugin in a worker process, as an object like any other plugin: `decide` does not know the difference.

It is asked in batches, which is part of the contract. A filter or score is asked for all nodes when a shape is first
examined in a view, and again after ASK_EVERY changes of the nodes; a queue order for all queues at the start of a
cycle, and for one queue again after ASK_TURNS of its turns; an allocation and a device score for each node that gets
pods. The counts depend on the snapshot alone, never on a clock, so a plan can be decided again.
"""

import time
import weakref
from collections.abc import Container, Sequence
from itertools import islice
from typing import Any, cast

import numpy as np

from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.plugins.contract import DomainTable, ReplicaNeed, VictimTable
from kaiwo.plugins.edge_contract import MonitoringSample, Notice, StartPlacement
from kaiwo.plugins.guarded_calls import rows_of
from kaiwo.runtime.plugin_worker import messages
from kaiwo.runtime.plugin_worker.worker_process import WorkerProcess, waited_ns
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.view import View

ASK_EVERY = 512  # changes of the nodes
ASK_TURNS = 64
ASK_ALONG = 15  # requests of the last cycle that a question about the start of a cycle asks about, too
QUESTION_US = 1_000  # what an answer may cost, again and again
ARRIVALS_S = 1.0  # workloads that arrive without such a pause are counted together
BATCHED = ("filter", "score")
MAX_KNOWN = 4_096  # requests whose `applies` is remembered


class _Batch:
    """The answers for all nodes, as of a clock of the view."""

    __slots__ = ("answer", "clock")

    def __init__(self, answer: Any, clock: int) -> None:
        self.answer, self.clock = answer, clock


class _Memory:
    """What was answered in one view: it ends with the cycle."""

    def __init__(self) -> None:
        self.batches: dict[tuple[str, Request], _Batch] = {}
        self.queue_keys: dict[int, tuple[tuple[int, ...], int]] = {}  # by queue: the key, and the turns since


class _Start:
    """The start of one cycle: where its amounts lie in the worker's memory, and what was asked about it."""

    __slots__ = ("asked", "earlier", "end", "places", "view")

    def __init__(self, view: View, earlier: Sequence[tuple[str, Request]]) -> None:
        self.view, self.earlier = weakref.ref(view), earlier  # of the last cycle
        self.asked: list[tuple[str, Request]] = []
        self.places: dict[str, messages.ArrayPlace] = {}  # empty: they are not there, or no longer
        self.end = 0

    def along(self, point: str, want: Request, known: Container[tuple[str, Request]]) -> tuple[Request, ...]:
        """Requests that this cycle may ask about, too: the same answers, without a call for each."""
        others = (each for at, each in self.earlier if at == point and each != want and (at, each) not in known)
        return tuple(islice(others, ASK_ALONG))


class _Account:
    """How much longer than QUESTION_US each the answers took in one cycle, or for workloads that arrived together."""

    __slots__ = ("excess_us", "last_s", "waited_ns")

    def __init__(self, waited_ns: int) -> None:
        self.excess_us, self.waited_ns, self.last_s = 0, waited_ns, 0.0


class _Defined:
    """Which nodes and queues the worker knows. A question about a change is asked of a copy of the state, whose nodes
    may differ at the same version: so the state belongs to it."""

    __slots__ = ("_queues", "_state", "_version", "names")

    def __init__(self, view: View) -> None:
        self.names, self._queues = view.nodes.names, view.queues.queues
        self._version = _version(view)
        self._state = weakref.ref(view._state)

    def is_of(self, view: View) -> bool:
        is_same = self.names is view.nodes.names and self._queues is view.queues.queues
        return is_same and self._version == _version(view) and self._state() is view._state


def _version(view: View) -> int:
    return int(view.nodes.node_changed.max(initial=-1))


class ConfinedPlugin:
    """Has the methods of the points that the plugin serves, and what it declares."""

    def __init__(self, name: str, version: str, worker: WorkerProcess) -> None:
        self.name, self.version, self.worker = name, version, worker
        self._defined: _Defined | None = None  # None: the worker knows nothing yet
        self._sent: dict[str, object] = {}  # nodes that the worker knows, by name
        self._sent_queues: object = None
        self._start: _Start | None = None  # of the cycle that asked last
        self._known_applies: dict[Request, bool] = {}
        self._arrivals = _Account(0)
        for field, value in worker.loaded.declared.items():
            setattr(self, field, _declared(field, value))
        for point in worker.loaded.points:
            setattr(self, point, getattr(self, f"_{point}"))
        for method in worker.loaded.methods:
            setattr(self, method, getattr(self, f"_{method}"))
        if "queue_order" in worker.loaded.points:
            self.queue_order_of = self._queue_order_of

    def _new_memory(self) -> _Memory:
        return _Memory()

    def _new_account(self, view: View) -> _Account:
        return _Account(waited_ns(self.worker.pid))

    def _filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        return self._batched("filter", view, want, nodes)

    def _score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        return self._batched("score", view, want, nodes)

    def _batched(self, point: str, view: View, want: Request, nodes: Rows) -> Any:
        if view.has_own_amounts:
            own = view.of(nodes)
            arrays = self._amounts(view) | {"rows": nodes, "own_free": own.free, "own_gpus": own.gpus}
            return self._ask(point, view, arrays, want=want)
        known = view.own(self._new_memory).batches
        batch = known.get((point, want))
        if batch is None or view.clock - batch.clock >= ASK_EVERY:
            wants = (want, *self._start_of(view).along(point, want, known)) if view.is_start else (want,)
            answer = self._ask(point, view, self._amounts(view), want=want, more=wants[1:])
            size = len(view.nodes.names)
            if not isinstance(answer, np.ndarray) or answer.shape not in ((size,), (len(wants), size)):
                return answer  # the caller says what is wrong with it
            for each, scores in zip(wants, answer.reshape(-1, size), strict=False):
                known[point, each] = _Batch(scores, view.clock)
            batch = known[point, want]
        if view.is_start:
            self._start_of(view).asked.append((point, want))
        return batch.answer[nodes]

    def _start_of(self, view: View) -> _Start:
        if self._start is None or self._start.view() is not view:
            self._start = _Start(view, self._start.asked if self._start is not None else ())
        return self._start

    def _gpu_score(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        return self._ask_about_node("gpu_score", view, want, node, columns)

    def _allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        return self._ask_about_node("allocation", view, want, node, columns)

    def _ask_about_node(self, point: str, view: View, want: Request, node: int, columns: IntArray) -> Any:
        arrays = {"free": view.free[node], "gpus": view.gpus[node], "columns": columns}
        return self._ask(point, view, arrays, want=want, node=int(node))

    def _queue_order(self, view: View, queues: Rows, next_need: IntArray, next_since_s: IntArray) -> IntArray:
        arrays = {"rows": np.asarray(queues), "next_need": next_need, "next_since_s": next_since_s}
        answer: Any = self._ask("queue_order", view, self._amounts(view) | arrays)
        keys = view.own(self._new_memory).queue_keys
        for row, key in zip(queues.tolist(), rows_of(self.name, answer, len(queues)), strict=True):
            keys[row] = (key, 0)
        return cast(IntArray, answer)

    def _queue_order_of(self, view: View, queue: int, next_need: tuple[int, ...], next_since_s: int) -> tuple[int, ...]:
        keys = view.own(self._new_memory).queue_keys
        key, turns = keys.get(queue, ((), ASK_TURNS))
        if turns >= ASK_TURNS:
            need = np.array([next_need], np.int64)
            self._queue_order(view, np.array([queue]), need, np.array([next_since_s], np.int64))
            key, turns = keys[queue]
        keys[queue] = (key, turns + 1)
        return key

    def _workload_order(self, workload: Workload, policy: Policy) -> tuple[int, ...]:
        key: tuple[int, ...] = self._ask("workload_order", None, {}, workload=workload, policy=policy)
        return key

    def _victim_filter(self, view: View, victims: VictimTable, policy: Policy) -> BoolArray:
        numbers = (victims.priority, victims.gpu_milli, victims.since_s, victims.ends_s, victims.lost_gpu_s)
        arrays = {"victims": np.array(numbers, np.int64), "is_surplus": victims.is_surplus}
        more = {"names": victims.workloads, "queues": victims.queues, "policy": policy}
        answer: BoolArray = self._ask("victim_filter", view, self._amounts(view) | arrays, **more)
        return answer

    def _domain_rule(self, view: View, domains: DomainTable, policy: Policy) -> BoolArray:
        named, amounts = _domains(domains)
        answer: BoolArray = self._ask("domain_rule", view, self._amounts(view) | amounts, domains=named, policy=policy)
        return answer

    def _placement_strategy(self, view: View, domains: DomainTable, terms: IntArray, weights: IntArray) -> IntArray:
        named, amounts = _domains(domains)
        arrays = self._amounts(view) | amounts | {"terms": terms, "weights": weights}
        answer: IntArray = self._ask("placement_strategy", view, arrays, domains=named)
        return answer

    def _replica_strategy(self, view: View, need: ReplicaNeed) -> IntArray:
        answer: IntArray = self._ask("replica_strategy", view, self._amounts(view), need=need)
        return answer

    # The points at the edge. Their answers are plain values; who asks checks them.

    def _reserve(self, placements: tuple[StartPlacement, ...], now_s: int) -> Any:
        return self._ask("reserve", None, {}, placements=placements, now_s=now_s)

    def _unreserve(self, placements: tuple[StartPlacement, ...]) -> Any:
        return self._ask("unreserve", None, {}, placements=placements)

    def _permit(self, placements: tuple[StartPlacement, ...], now_s: int) -> Any:
        return self._ask("permit", None, {}, placements=placements, now_s=now_s)

    def _bind(self, placements: tuple[StartPlacement, ...]) -> Any:
        return self._ask("bind", None, {}, placements=placements)

    def _post_bind(self, placements: tuple[StartPlacement, ...], now_s: int) -> Any:
        return self._ask("post_bind", None, {}, placements=placements, now_s=now_s)

    def _resource(self, nodes: tuple[Node, ...]) -> Any:
        return self._ask("resource", None, {}, nodes=nodes)

    def _topology_source(self, nodes: tuple[Node, ...], text: str) -> Any:
        return self._ask("topology_source", None, {}, nodes=nodes, text=text)

    def _metrics(self, sample: MonitoringSample) -> Any:
        return self._ask("metrics", None, {}, sample=sample)

    def _sink(self, sample: MonitoringSample) -> Any:
        return self._ask("sink", None, {}, sample=sample)

    def _notification(self, notice: Notice) -> Any:
        return self._ask("notification", None, {}, notice=notice)

    def _applies(self, want: Request) -> bool:
        """A pure plugin gives equal requests equal answers."""
        known = self._known_applies.get(want)
        if known is None:
            if len(self._known_applies) >= MAX_KNOWN:
                self._known_applies.clear()
            known = self._known_applies[want] = bool(self._ask("applies", None, {}, want=want))
        return known

    def _gpu_applies(self, view: View, want: Request) -> bool:
        """Asked as often as a score: it may depend on the view."""
        known = view.own(self._new_memory).batches
        batch = known.get(("gpu_applies", want))
        if batch is None or view.clock - batch.clock >= ASK_EVERY:
            answer = bool(self._ask("gpu_applies", view, self._amounts(view), want=want))
            batch = known["gpu_applies", want] = _Batch(answer, view.clock)
        return bool(batch.answer)

    def _amounts(self, view: View) -> dict[str, Any]:
        return {
            "free": view.free, "gpus": view.gpus, "all_used": view.all_used,
            "all_non_preemptible": view.all_non_preemptible, "rows": view.all_rows,
        }  # fmt: skip

    def _ask(self, point: str, view: View | None, arrays: dict[str, Any], **more: Any) -> Any:
        """One question at a time: cycles, arriving workloads and sinks are asked about on different threads."""
        with self.worker.lock:
            self.worker.check()
            if view is not None:
                self._define(view)
                more |= {"now_s": view.now_s, "clock": view.clock}
            places = self._put(point, view, arrays)
            account, began_s = self._account(point, view), time.monotonic()
            answer = self.worker.ask(messages.Ask(self.worker.next_number(), point, places, **more))
            if account is not None:
                self._charge(account, time.monotonic(), began_s, 1 + len(more.get("more", ())))
            return answer

    def _put(self, point: str, view: View | None, arrays: dict[str, Any]) -> dict[str, messages.ArrayPlace]:
        """The amounts at the start of a cycle are copied once: most shapes are first asked about there."""
        if view is None or not view.is_start or point not in BATCHED:
            return self._put_all(arrays)
        start = self._start_of(view)
        if not start.places:
            start.places = self.worker.put(arrays)
            start.end = self.worker.input.end
        return start.places | self.worker.put({}, start.end)

    def _put_all(self, arrays: dict[str, Any]) -> dict[str, messages.ArrayPlace]:
        if self._start is not None:
            self._start.places = {}  # this takes their place
        return self.worker.put(arrays)

    def _account(self, point: str, view: View | None) -> _Account | None:
        """Of this cycle, or of the workloads that arrive; None: nobody waits for this answer."""
        if view is not None:
            return view.once(self._new_account)
        if point != "workload_order":
            return None
        if time.monotonic() - self._arrivals.last_s > ARRIVALS_S:
            self._arrivals = _Account(waited_ns(self.worker.pid))
        return self._arrivals

    def _charge(self, account: _Account, now_s: float, began_s: float, requests: int) -> None:
        """Many answers just within the deadline would take a cycle as long as one that never comes: beyond QUESTION_US
        each, all answers of a cycle together have one deadline."""
        account.last_s = now_s
        account.excess_us = max(0, account.excess_us + round((now_s - began_s) * 1e6) - requests * QUESTION_US)
        most_us = self.worker.deadline_ms * 1000
        if account.excess_us <= most_us:
            return
        late_us = (waited_ns(self.worker.pid) - account.waited_ns) // 1000  # a busy machine is not a plugin's fault
        if account.excess_us - late_us > most_us:
            most = f"{self.worker.deadline_ms} ms beyond 1 ms for each answer"
            raise self.worker.stop(f"took too much time of one cycle: more than {most}")

    def _define(self, view: View) -> None:
        """Tell the worker which nodes and queues are new, if any: most questions find it up to date."""
        nodes, known = view.nodes, self._defined
        if known is not None and known.is_of(view):
            return
        names = None if known is not None and known.names is nodes.names else tuple(nodes.names)
        sent = self._sent
        changed = tuple(node for node in nodes.nodes if sent.get(node.name) is not node)
        queues = None if view.queues.queues is self._sent_queues else tuple(view.queues.queues)
        places = self._put_all({name: getattr(nodes, name) for name in messages.NODE_COLUMNS})
        lists = (tuple(nodes.models), tuple(nodes.profiles), tuple(nodes.extended_names), dict(nodes.vendors))
        number = self.worker.next_number()
        self.worker.define(messages.Define(number, names, changed, places, *lists, queues))
        self._sent = {node.name: node for node in nodes.nodes}
        self._defined, self._sent_queues = _Defined(view), view.queues.queues


def _domains(domains: DomainTable) -> tuple[messages.DomainNames, dict[str, Any]]:
    named = messages.DomainNames(domains.workload, domains.queue, domains.topology, domains.level, domains.names)
    amounts = np.array((domains.nodes, domains.gpu_milli, domains.gpu_used_milli), np.int64)
    return named, {"domain_amounts": amounts}


def _declared(field: str, value: Any) -> Any:
    if field == "reason":
        return Reason(value)
    return tuple(value) if field == "depends_on" and isinstance(value, list) else value
