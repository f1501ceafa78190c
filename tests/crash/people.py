"""People who use a Kaiwo that is killed under them: they submit, steer, and remember what they were told."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.crash.jobs import Submission, kind_of, make_job
from tests.crash.product import GoneError, Product
from tests.waiting import PATIENCE_S

UP = ("starting", "running")
LIVING = ("waiting", "held", "starting", "running", "stopping")
FINISH_S = 3 * PATIENCE_S


class People:
    """What they know outlives every Kaiwo."""

    def __init__(self, effects: Path, seed: int) -> None:
        self.effects = effects
        self.accepted: list[str] = []
        self.cancelled: set[str] = set()  # perhaps: the answer may have been lost
        self.disturbed: set[str] = set()  # perhaps stopped and run again
        self.surprises: list[str] = []
        self._submitting = random.Random(seed)
        self._steering = random.Random(seed + 1)
        self._in_doubt: Submission | None = None  # sent, and no answer came
        self._number = 0

    @contextlib.contextmanager
    def at_work(self, product: Product, jobs: int) -> Iterator[None]:
        """They work while the block runs, and until the product is gone: `jobs` in all are submitted by then."""
        threads = [
            threading.Thread(target=self._until_gone, args=(lambda: self._submit(product, jobs),)),
            threading.Thread(target=self._until_gone, args=(lambda: self._steer(product),)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for thread in threads:
                thread.join()

    def finish(self, product: Product) -> None:
        """Let everything come to its end: release, cancel what has none, and wait."""
        self._resolve(product)
        self._act(product, "POST", "/nodes/node-1/uncordon")
        self._act(product, "POST", "/nodes/node-2/uncordon")
        deadline = time.monotonic() + FINISH_S
        while living := product.names(*LIVING):
            assert time.monotonic() < deadline, f"these never end: {living}"
            for name in product.names("held"):
                self._act(product, "POST", f"/workloads/{name}/release")
            for name in living:
                if kind_of(name) == "endless" or self._waits_in_vain(product, name):
                    self._cancel(product, name)
            time.sleep(0.1)

    def _until_gone(self, work: Callable[[], None]) -> None:
        try:
            work()
        except GoneError:
            return
        except Exception as error:  # a thread's failure must fail the test
            self.surprises.append(repr(error))

    def _submit(self, product: Product, jobs: int) -> None:
        self._resolve(product)
        while self._number < jobs:
            self._number += 1
            last = self.accepted[-1] if self.accepted else ""
            self._send(product, make_job(self._number, self._submitting, self.effects, last))
            time.sleep(self._submitting.random() * 0.1)

    def _send(self, product: Product, job: Submission) -> None:
        self._in_doubt = job
        status, answer = product.ask("POST", job.path, job.body)
        self._in_doubt = None
        if status in (200, 201):
            self.accepted += job.names
        else:
            self.surprises.append(f"{job.names} were answered with {status}: {answer}")

    def _resolve(self, product: Product) -> None:
        """What was sent when the last Kaiwo died was taken whole, or not at all: then it is sent again."""
        job = self._in_doubt
        if job is None:
            return
        there = [name for name in job.names if product.ask("GET", f"/workloads/{name}")[0] == 200]
        if not there:
            self._send(product, job)
            return
        if len(there) < len(job.names):
            self.surprises.append(f"of {job.names} only {there} were taken")
        self.accepted += there
        self._in_doubt = None

    def _steer(self, product: Product) -> None:
        chance = self._steering
        while True:
            time.sleep(chance.random() * 0.15)
            running, waiting = product.names(*UP), product.names("waiting", "held")
            endless = [name for name in running if kind_of(name) == "endless"]
            if endless and chance.random() < 0.3:
                self._cancel(product, endless[0])
            match chance.randrange(12):
                case 0 if running:
                    self._requeue(product, chance.choice(running))
                case 1 if running or waiting:
                    self._cancel(product, chance.choice(running + waiting))
                case 2 | 3 if waiting:
                    self._act(product, "POST", f"/workloads/{chance.choice(waiting)}/hold")
                case 4 | 5 | 6 if waiting:
                    self._act(product, "POST", f"/workloads/{chance.choice(waiting)}/release")
                case 7:
                    self._drain(product, chance.choice(("node-1", "node-2")))

    def _cancel(self, product: Product, name: str) -> None:
        self.cancelled.add(name)
        self._act(product, "DELETE", f"/workloads/{name}")

    def _requeue(self, product: Product, name: str) -> None:
        self.disturbed.add(name)
        self._act(product, "POST", f"/workloads/{name}/requeue")

    def _drain(self, product: Product, node: str) -> None:
        known = len(self.accepted)  # first: what is accepted during the question may be missing in the answer
        there = product.names(*LIVING)
        try:
            _, answer = product.ask("POST", f"/nodes/{node}/drain")
        except GoneError:  # who had to go, nobody said
            in_doubt = self._in_doubt.names if self._in_doubt else ()
            self.disturbed.update(there, self.accepted[known:], in_doubt)
            raise
        self.disturbed.update(answer["names"])
        self._act(product, "POST", f"/nodes/{node}/uncordon")

    def _waits_in_vain(self, product: Product, name: str) -> bool:
        status, answer = product.ask("GET", f"/workloads/{name}")
        return status == 200 and any(each["reason"] == "dependency-failed" for each in answer["obstacles"])

    def _act(self, product: Product, method: str, path: str) -> None:
        status, answer = product.ask(method, path)
        if status not in (200, 404, 409):  # it may have ended meanwhile
            self.surprises.append(f"{method} {path} was answered with {status}: {answer}")
