"""A small server that speaks the API's JSON, so that the CLI can be tested without the product behind it."""

import threading
from collections.abc import Callable, Collection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from kaiwo import __version__
from kaiwo.api.routes.array_names import NamedTasks
from kaiwo.api.routes.workloads import TASK_STATES
from kaiwo.api.views.answers import Outcome, Page, Problem
from kaiwo.api.views.cluster import ClusterView, CycleView, StatusView, Usage
from kaiwo.api.views.nodes import GpuView, NodeView, TenantView
from kaiwo.api.views.people import LoginView
from kaiwo.api.views.queues import AmountView, QueueView
from kaiwo.api.views.topology import TopologyView
from kaiwo.api.views.workloads import (
    ActionResult,
    AttemptsView,
    AttemptView,
    BulkOutcome,
    ConsoleView,
    NamesForm,
    ObstacleView,
    PodView,
    WhyView,
    WorkloadDetail,
    WorkloadView,
)
from kaiwo.cli.name_completion import chosen_tasks
from kaiwo.model.queue import ReclaimStrategy, SharePolicy
from kaiwo.model.workload import Phase
from kaiwo.model.workload_record import WorkloadState

NOW = 1_000_000
TOKEN = "secret-token"


def workload(name: str, state: str = "running", **more: Any) -> WorkloadView:
    facts: dict[str, Any] = {
        "queue": "default", "user": "ada", "kind": "training", "priority": 0, "wants": "4 GPUs", "gpu_milli": 4000,
        "pods": Usage(1, 1 if state == "running" else 0), "submitted_s": NOW - 840,
        "started_s": NOW - 600 if state in ("running", "succeeded", "failed") else 0,
        "ended_s": NOW - 60 if WorkloadState(state).is_over else 0, "attempt": 1,
        "reason": "needs 4 free GPUs on one node, the best has 2" if state == "waiting" else "",
        "nodes": ["node-1"] if state == "running" else [], "labels": {},
    }  # fmt: skip
    full = name if "/" in name else f"default/{name}"
    return WorkloadView(name=full, state=WorkloadState(state), **(facts | more))


def detail(view: WorkloadView, **more: Any) -> WorkloadDetail:
    obstacle = ObstacleView("not-enough-free-gpus", view.reason, "ask for 2 GPUs", 4, 2, "gpus", "")
    facts: dict[str, Any] = {
        "placed": [PodView("main-0", node, Phase.RUNNING, NOW - 600, ["gpu-0"]) for node in view.nodes],
        "obstacles": [obstacle] if view.reason else [],
        "requests": ["main: 1 pod with 4 GPUs"], "command": ["python", "train me.py"], "image": "", "after": [],
        "time_limit_s": 7200, "estimate_s": 0, "learned_s": 0, "retries": 2, "preemptible": True,
        "exit_code": 3 if view.state == "failed" else 0, "message": "exit code 3" if view.state == "failed" else "",
    }  # fmt: skip
    return WorkloadDetail(summary=view, **(facts | more))


def gpu(node: str, index: int, *tenants: TenantView, **more: Any) -> GpuView:
    used = sum(t.milli for t in tenants)
    facts: dict[str, Any] = {
        "model": "MI300X", "memory_mib": 196608, "free_milli": 1000 - used, "free_mib": 196608 * (1000 - used) // 1000,
        "healthy": True, "reason": "",
    }  # fmt: skip
    return GpuView(node=node, id=f"gpu-{index}", index=index, tenants=list(tenants), **(facts | more))


def node(name: str, state: str = "ready", **more: Any) -> NodeView:
    half = TenantView("default/train", "main-0", 500, 98304, Phase.RUNNING)
    facts: dict[str, Any] = {
        "reason": "new fan" if state == "cordoned" else "", "labels": {"pool": "a"}, "taints": [],
        "cpu_milli": Usage(128000, 4000), "memory_mib": Usage(2097152, 16384),
        "pods": Usage(110, 1), "gpu_milli": Usage(2000, 500), "gpus": [gpu(name, 0, half), gpu(name, 1)],
    }  # fmt: skip
    return NodeView(name=name, state=state, **(facts | more))


def queue(name: str, parent: str = "", depth: int = 0, **more: Any) -> QueueView:
    facts: dict[str, Any] = {
        "display_name": "", "priority": 100, "is_leaf": True,
        "gpu_milli": AmountView(8000, -1, 1, 4500, 4000, 500, 8500),
        "cpu_milli": AmountView(0, -1, 1, 4000, 0, 0, 4000),
        "memory_mib": AmountView(0, 65536, 1, 16384, 0, 0, 16384), "gpu_models": {},
        "running": 1, "waiting": 1, "policy": SharePolicy.DRF, "reclaim_strategy": ReclaimStrategy.AGGRESSIVE,
        "min_runtime_s": 0, "namespaces": [], "users": [], "created_s": 0,
    }  # fmt: skip
    return QueueView(name=name, parent=parent, depth=depth, **(facts | more))


def cycle(number: int) -> CycleView:
    return CycleView(number, NOW - 12, 1, 0, 2, 40, 1.25, [])


class Stub:
    """The state, what was written, and ways to misbehave."""

    def __init__(self) -> None:
        self.workloads = {w.name: w for w in (workload("train"), workload("eval", "waiting", wants="0.5 GPU"))}
        self.details: dict[str, WorkloadDetail] = {}
        self.nodes = [node("node-1"), node("node-2", "cordoned")]
        self.queues = [queue("lab", is_leaf=False), queue("default"), queue("vision", "lab", 1)]
        self.topology = TopologyView(NOW, [], [], [])
        self.cycles = [cycle(812), cycle(811)]
        self.why: WhyView | None = None
        self.logs: list[bytes] = [b"step 1\n", b"step 2\n"]
        self.attempts = [1]  # whose logs are kept
        self.is_followed = False  # to the end of the last: then the workload is over
        self.steered: list[str] = []  # "cancel default/train"
        self.cuts_log = False  # the connection dies in the middle
        self.seen: list[tuple[str, str, dict[str, list[str]], bytes, dict[str, str]]] = []
        self.answers: dict[str, tuple[Any, ...]] = {}  # by "METHOD path": instead of the real thing
        self.events: list[tuple[str, Any]] = []  # what a stream says after its first event
        self.stream_views: list[str] = []
        self.on_write: Callable[[str, str], None] = lambda method, path: None
        stub = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                stub.answer(self, "GET")

            def do_POST(self) -> None:
                stub.answer(self, "POST")

            def do_DELETE(self) -> None:
                stub.answer(self, "DELETE")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def written(self) -> list[str]:
        """What was asked to change; a dry run is not."""
        asked = [seen for seen in self.seen if seen[0] != "GET" and "dry_run" not in seen[2]]
        return [f"{method} {path}" for method, path, *_ in asked]

    def last_form(self) -> Any:
        return msgspec.json.decode(next(body for method, *_, body, _ in reversed(self.seen) if method == "POST"))

    def answer(self, http: Any, method: str) -> None:
        parts = urlsplit(http.path)
        path, query = parts.path.removeprefix("/api/v1"), parse_qs(parts.query)
        body = http.rfile.read(int(http.headers.get("Content-Length") or 0))
        self.seen.append((method, path, query, body, dict(http.headers.items())))
        if f"{method} {path}" in self.answers:
            self.send(http, *self.answers[f"{method} {path}"])
        elif method != "GET" and http.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.problem(http, 401, "forbidden", "writes need the token")
        elif method != "GET":
            self.on_write(method, path)
            self.write(http, method, path, query, body)
        elif path == "/stream":
            self.stream(http, query)
        elif path.endswith("/logs"):
            self.is_followed = query.get("attempt") == [str(self.attempts[-1])]
            self.log(http, path)
        else:
            self.read(http, path, query)

    def read(self, http: Any, path: str, query: dict[str, list[str]]) -> None:
        words = [unquote(word) for word in path.strip("/").split("/")]
        if path == "/version":
            self.json(http, {"version": __version__, "api": "v1"})
        elif path == "/status":
            self.json(http, self.status())
        elif path == "/topology":
            self.json(http, self.topology)
        elif words[0] == "workloads" and len(words) >= 3:
            self.read_workload(http, f"{words[1]}/{words[2]}", words[3:])
        elif len(words) == 2:
            items = self.items(words[0], {})
            found = next((item for item in items if item.name == words[1]), None)
            if found:
                self.json(http, found)
            else:
                self.problem(http, 404, "not-found", f"there is no {words[0][:-1]} '{words[1]}'")
        else:
            self.json(http, self.page(words[0], query))

    def read_workload(self, http: Any, name: str, rest: list[str]) -> None:
        view = self.workloads.get(name)
        if view is None:
            self.problem(http, 404, "not-found", f"there is no workload '{name}'; see: kaiwo get workloads")
        elif rest == ["why"]:
            self.json(http, self.why)
        elif rest == ["attempts"]:
            kept = [AttemptView(each, True) for each in self.attempts]
            self.json(http, AttemptsView(kept, WorkloadState.SUCCEEDED if self.is_followed else view.state))
        elif rest == ["console"]:
            self.json(http, ConsoleView(False, ""))
        else:
            self.json(http, self.details.get(name) or detail(view))

    def page(self, kind: str, query: dict[str, list[str]]) -> Page[Any]:
        items = self.items(kind, query)
        start, size = int(query.get("after", ["0"])[0]), int(query.get("limit", ["50"])[0])
        end = start + size
        return Page(items[start:end], len(items), str(end) if end < len(items) else "")

    def items(self, kind: str, query: dict[str, list[str]]) -> list[Any]:
        if kind == "nodes":
            return self.nodes
        if kind == "queues":
            return self.queues
        if kind == "cycles":
            return self.cycles
        if kind == "gpus":
            return [g for n in self.nodes for g in n.gpus if n.name in query.get("node", [n.name])]
        states = [state for text in query.get("state", []) for state in text.split(",")]
        found = [w for w in self.workloads.values() if not states or w.state in states]
        found = [w for w in found if query.get("q", [""])[0] in w.name]
        found = [w for w in found if query.get("queue", [w.queue])[0] == w.queue]
        for label in query.get("label", []):
            key, _, value = label.partition("=")
            found = [w for w in found if w.labels.get(key) == value]
        return found

    def status(self) -> StatusView:
        counts: dict[str, int] = {}
        for w in self.workloads.values():
            counts[w.state] = counts.get(w.state, 0) + 1
        return StatusView(
            ClusterView("local", "here", True, 1.0, NOW), Usage(2, 1), 1, Usage(4, 2),
            Usage(4000, 1000), Usage(256000, 8000), Usage(4194304, 32768), counts,
            len(self.queues), self.cycles[0], __version__,
        )  # fmt: skip

    def write(self, http: Any, method: str, path: str, query: dict[str, list[str]], body: bytes) -> None:
        words = [unquote(word) for word in path.strip("/").split("/")]
        verb = words[-1] if method == "POST" else "cancelled"
        if words[0] == "workloads" and len(words) == 2:
            self.steer(http, words[1], msgspec.json.decode(body, type=NamesForm).names)
        elif path == "/workloads":
            form = msgspec.json.decode(body)
            name = f"{form.get('namespace', 'default')}/{form['name']}"
            would = "would be submitted" if query.get("dry_run") else "submitted"
            if not query.get("dry_run"):
                self.workloads.setdefault(name, workload(name, "waiting"))
            self.json(http, Outcome([f"workload {name} {would}"], [], [name]))
        elif path.startswith("/manifests"):
            done = "deleted" if verb == "delete" else "applied"
            self.json(http, Outcome([f"queue lab {done}"], ["kaiwo.silogen.ai is an old name"]))
        elif words[0] == "workloads" and f"{words[1]}/{words[2]}" not in self.workloads:
            self.problem(http, 404, "not-found", f"there is no workload '{words[1]}/{words[2]}'")
        elif path == "/logins":
            self.json(http, LoginView("/login?code=once"))
        elif path == "/demo":
            self.json(http, Outcome(["12 workloads of the demo removed"]))
        else:
            self.json(http, Outcome([f"{words[0][:-1]} {'/'.join(words[1:3])} {verb}"]))

    def steer(self, http: Any, verb: str, names: list[str]) -> None:
        self.steered += [f"{verb} {name}" for name in names]
        results = []
        for name in names:
            if name in self.workloads:
                results.append(ActionResult(name, f"workload {name} {verb}", None))
            elif tasks := self.tasks_of(name, TASK_STATES[verb]):
                array = NamedTasks(name, (), True).array_words
                results.append(ActionResult(name, f"{array}: {len(tasks)} tasks {verb}", None))
            else:
                results.append(ActionResult(name, "", Problem("not-found", f"there is no workload '{name}'")))
        self.json(http, BulkOutcome(results))

    def tasks_of(self, name: str, states: Collection[str]) -> list[WorkloadView]:
        """The tasks in these states that `default/sweep-*` or `default/sweep[0-9]` means."""
        chosen = chosen_tasks(name)
        named = set(chosen.names) if chosen is not None else ()
        namespace, _, base = (name.removesuffix("-*") if chosen is None else chosen.array).partition("/")
        return [
            each
            for each in self.workloads.values()
            if (name.endswith("-*") if chosen is None else each.name in named)
            and each.labels.get("kaiwo.ai/array") == base
            and each.name.startswith(f"{namespace}/")
            and each.state in states
        ]

    def stream(self, http: Any, query: dict[str, list[str]]) -> None:
        kind = query["view"][0]
        self.stream_views.append(kind)
        self.start(http, 200, "text/event-stream")
        if kind == "status":
            first: Any = {"items": [self.status()], "total": 1}
        else:
            page = self.page(kind, query)
            first = {"items": page.items, "total": page.total, "next": page.next}
        self.chunk(http, b": hello\n\n")
        for number, (event, data) in enumerate([("reset", {"view": kind, "key": "name", **first}), *self.events]):
            self.chunk(http, f"id: e-{number}\nevent: {event}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n")
        threading.Event().wait(20)

    def log(self, http: Any, path: str) -> None:
        self.start(http, 200, "text/plain")
        for part in self.logs:
            self.chunk(http, part)
        if self.cuts_log:
            http.close_connection = True
            http.connection.shutdown(2)
        else:
            self.chunk(http, b"")

    def start(self, http: Any, status: int, mime: str) -> None:
        http.send_response(status)
        http.send_header("Content-Type", mime)
        http.send_header("Transfer-Encoding", "chunked")
        http.end_headers()

    def chunk(self, http: Any, data: bytes) -> None:
        http.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        http.wfile.flush()

    def problem(self, http: Any, status: int, kind: str, message: str) -> None:
        self.send(http, status, msgspec.json.encode(Problem(kind, message)))

    def json(self, http: Any, data: Any) -> None:
        self.send(http, 200, msgspec.json.encode(data))

    def send(self, http: Any, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        http.send_response(status)
        for name, value in (headers or {}).items():
            http.send_header(name, value)
        http.send_header("Content-Length", str(len(body)))
        http.end_headers()
        http.wfile.write(body)


def problem_body(kind: str, message: str, field: str = "") -> bytes:
    return msgspec.json.encode(Problem(kind, message, field))
