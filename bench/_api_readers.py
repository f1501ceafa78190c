"""Readers of a busy Kaiwo's API, in a process of their own: `python -m bench._api_readers URL TOKEN`.

Five readers follow a stream and three send a request every 100 ms, until standard input ends. Then the process prints
JSON: how many answers and events came, and how long the answers took.
"""

import http.client
import json
import random
import sys
import threading
import time
from urllib.parse import urlsplit

FOLLOWED = (
    "view=status",
    "view=nodes&limit=100",
    "view=gpus&limit=200",
    "view=queues",
    "view=workloads&state=waiting&sort=-submitted&limit=50",
)
ASK_S = 0.1


class ApiReaders:
    def __init__(self, url: str, token: str) -> None:
        self._headers = {"Authorization": f"Bearer {token}"}
        self._address = urlsplit(url).netloc
        self._is_over = threading.Event()
        self._waiting: list[str] = []
        self.took_ms: dict[str, list[float]] = {"status": [], "workloads": [], "why": []}
        self.events = 0
        self.failures = 0

    def begin(self) -> None:
        """Start one thread for each reader."""
        works = [lambda query=query: self._follow(query) for query in FOLLOWED]
        works += [lambda kind=kind: self._ask(kind) for kind in self.took_ms]
        for work in works:
            threading.Thread(target=work, daemon=True).start()

    def end(self) -> dict[str, object]:
        """Stop, and return what was measured."""
        self._is_over.set()
        worst = {f"{kind}_p99_ms": _p99(took) for kind, took in self.took_ms.items()}
        answers = sum(map(len, self.took_ms.values()))
        return {"answers": answers, "events": self.events, "failures": self.failures, **worst}

    def _follow(self, query: str) -> None:
        connection = http.client.HTTPConnection(self._address)
        connection.request("GET", f"/api/v1/stream?{query}", headers=self._headers)
        answer = connection.getresponse()
        while not self._is_over.is_set():
            line = answer.readline()
            if not line:
                self.failures += 1
                return
            self.events += line.startswith(b"event:")

    def _ask(self, kind: str) -> None:
        draw, connection = random.Random(kind), http.client.HTTPConnection(self._address)
        while not self._is_over.wait(ASK_S):
            path = self._path(kind, draw)
            began = time.perf_counter()
            connection.request("GET", f"/api/v1{path}", headers=self._headers)
            answer = connection.getresponse()
            body = answer.read()
            self.took_ms[kind].append((time.perf_counter() - began) * 1000)
            self.failures += answer.status not in (200, 404)  # it may have been removed since the list was read
            if kind == "workloads" and answer.status == 200:
                self._waiting = [item["name"] for item in json.loads(body)["items"]]

    def _path(self, kind: str, draw: random.Random) -> str:
        if kind == "workloads":
            sort = draw.choice(("-submitted", "name", "-priority", "state", "gpus"))
            return f"/workloads?sort={sort}&state=waiting,running&limit=50"
        if kind == "why" and self._waiting:
            return f"/workloads/{draw.choice(self._waiting)}/why"
        return "/status"


def _p99(took: list[float]) -> float:
    ordered = sorted(took)
    return round(ordered[int(len(ordered) * 0.99)], 1) if ordered else 0.0


if __name__ == "__main__":
    readers = ApiReaders(*sys.argv[1:])
    readers.begin()
    sys.stdin.read()
    print(json.dumps(readers.end()))
