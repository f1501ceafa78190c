"""The alerts of one running Kaiwo: evaluate the rules on every sample, remember what happened, and tell the channels.

In:    samples of the cluster, and work that ends.   Out: rows of alerts.db, messages to channels, notices to plugins.
Never: stops scheduling or recording. When the file cannot be written, alerts are still evaluated and told; only a
       restart would forget them then.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kaiwo.history.record_file import set_aside
from kaiwo.history.series.series_writer import Frame
from kaiwo.model.alerts.alert import Alert, Silence
from kaiwo.model.alerts.alert_rule import Severity
from kaiwo.model.alerts.channel import AlertSettings, Channel
from kaiwo.model.errors import ClusterError, ConfigError, DamagedFileError, NotFoundError
from kaiwo.model.workload_record import WorkloadRecord
from kaiwo.plugins.edge_contract import Notice
from kaiwo.runtime.alerting.delivery import ChannelDelivery
from kaiwo.runtime.alerting.load_settings import built_in_settings, load_alert_settings
from kaiwo.runtime.edge_points.ended_work import NEVER_S, EndedWork
from kaiwo.runtime.edge_points.notifications import NOTICE_CODES
from kaiwo.runtime.log import emit, emit_limited
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.telemetry.alerts.alert_store import FILE, AlertStore, Message, StoredMessage, ToldWork
from kaiwo.telemetry.alerts.evaluate import AlertMemory, Evaluation, evaluate
from kaiwo.telemetry.alerts.rule_set import RuleSet, matches

T = TypeVar("T")
SAVE_TIME_S = 60.0  # how often the time of the last evaluation is written when nothing else is
DAY_S = 86_400
LOOK_S = 0.5
SET_ASIDE_EVERY_S = 600.0  # a bad disk does not fill itself with damaged files
SAVE_SIGNALS_S = 300.0  # how often what rules remember of the past is written


class AlertLoop:
    """Lives on the event loop; the file is used on a thread of its own."""

    def __init__(self, live: LiveLoop, home: str, path: str = "") -> None:
        self._live, self._path, self._file = live, path, Path(home) / FILE
        self.settings = built_in_settings()
        self.problem = ""  # why the rules' file is not used as it is now
        self.memory = AlertMemory()
        self.silences: list[Silence] = []
        self.channels: dict[str, ChannelDelivery] = {}
        self.evaluations, self.evaluation_s = 0, 0.0  # how many, and what the last one took
        self.fired = self.resolved = 0  # since the start
        self.notify: Callable[[Notice], None] = lambda _: None  # tells plugins
        self.may_act: Callable[[], bool] = lambda: True  # False: a standby
        self._rules = RuleSet(self.settings.rules, self.settings.inhibitions)
        self._thread = ThreadPoolExecutor(1, "kaiwo-alerts")
        self._store: AlertStore | None = None
        self._unsaved: list[Alert] = []
        self._fired_unix: dict[str, float] = {}  # by alert: when it fired by this machine's clock
        self._seen_mtime: float | None = None
        self._saved_at = self._signals_saved_at = 0.0
        self._is_loaded = False
        self._told, self._jobs_since_s = ToldWork(), NEVER_S
        self._turn = asyncio.Lock()
        self._delivering: dict[str, asyncio.Task[None]] = {}
        self._first_number, self._set_aside_at = 1, -SET_ASIDE_EVERY_S
        self._numbers = -1  # of messages that are in no file

    def use_file(self, path: str) -> None:
        """Rules and channels of this file, from the start on. ConfigError when they are wrong."""
        self._path = path
        self._use(load_alert_settings(path))
        self._seen_mtime = _mtime(path)

    async def run(self) -> None:
        """Tell people whose work has ended, until cancelled."""
        try:
            await self._watch_ended()
        finally:
            for task in self._delivering.values():
                task.cancel()
            await asyncio.gather(*self._delivering.values(), return_exceptions=True)
            await self._on_thread(self._close)
            self._thread.shutdown()

    # -- evaluating

    async def look(self, now_s: int, frame: Frame) -> None:
        """Evaluate all rules on a sample. Failures are logged, and never raised."""
        try:
            async with self._turn:
                await self._load()
                await self._follow_file()
                began = time.thread_time()
                done = evaluate(self._rules, self.memory, frame, now_s, self.silences)
                self.evaluation_s = time.thread_time() - began
                self.evaluations += 1
                await self._keep(done, now_s)
        except Exception as error:  # the next sample is evaluated again: log it
            emit_limited("alerts-failed", level="error", cause=f"{type(error).__name__}: {error}"[:300])

    async def _keep(self, done: Evaluation, now_s: int) -> None:
        """Remember and tell. What the file does not take is kept here, and written with the next evaluation."""
        now_unix = time.time()
        for alert in done.changed:
            if alert.fired_s and alert.id not in self._fired_unix:
                self._fired_unix[alert.id] = now_unix
                self.fired += 1
        for alert in done.told:
            code = "alert-resolved" if alert.resolved_s else "alert-firing"
            self.notify(Notice(code, f"{alert.rule}/{alert.subject}", now_s, alert.summary))
        messages = self._messages(done.told, now_unix)
        whole = done._replace(changed=(*self._unsaved, *done.changed))
        self.memory = done.memory
        try:
            stored = await self._in_file(lambda store: self._save(store, whole, messages, (now_s, now_unix)))
            self._unsaved = []
        except ClusterError as error:
            emit_limited("alerts-not-saved", level="error", cause=str(error)[:300])
            self._unsaved = list(whole.changed)[-10_000:]
            stored = self._without_file(messages, now_unix)
        for alert in done.changed:
            if alert.resolved_s:
                self.resolved += 1
                self._fired_unix.pop(alert.id, None)
        await self._hand_over(stored)

    def _save(
        self, store: AlertStore, done: Evaluation, messages: Sequence[Message], now: tuple[int, float]
    ) -> list[StoredMessage]:
        at = time.monotonic()
        if not (done.changed or done.dropped or messages) and at - self._saved_at < SAVE_TIME_S:
            return []
        stored = store.save(done, messages, now)
        self._saved_at = at
        if at - self._signals_saved_at > SAVE_SIGNALS_S:
            store.save_signals(done.memory.signals)
            self._signals_saved_at = at
        return stored

    def _messages(self, told: Sequence[Alert], now_unix: float) -> list[Message]:
        return [
            Message(
                each.channel.name, alert, began_unix=self._fired_unix.get(alert.id, now_unix),
                ended_unix=now_unix if alert.resolved_s else 0.0,
            )
            for alert in told for each in self.channels.values() if wants(each.channel, alert)
        ]  # fmt: skip

    # -- work that ends

    async def _watch_ended(self) -> None:
        ended, seen = None, -1
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._live.ready or not self.may_act() or (seen == self._live.revision and ended is not None):
                continue
            seen = self._live.revision
            try:
                if not self.settings.jobs.channels:
                    ended = None  # begin anew when somebody is to be told
                    continue
                async with self._turn:
                    await self._load()
                    if ended is None:
                        self._told = await self._in_file(lambda store: store.told_work())
                        since_s = self._told.until_s - 1 if self._told.until_s else self._jobs_since_s
                        ended = EndedWork(self._live.cluster, max(since_s, self._live.cluster.now_s() - DAY_S))
                    if news := ended.news():
                        await self._store_notices(news)
            except Exception as error:  # the next change is looked at again: log it
                emit_limited("notices-failed", level="error", cause=f"{type(error).__name__}: {error}"[:300])
                await asyncio.sleep(1.0)

    async def _store_notices(self, records: Sequence[WorkloadRecord]) -> None:
        jobs, now_unix, known = self.settings.jobs, time.time(), set(self._told.also)
        records = [each for each in records if (each.workload.name, each.submission) not in known]
        messages = [
            Message(
                name, subject=record.workload.name, code=NOTICE_CODES[record.state], user=record.workload.user,
                text=record.message, began_unix=now_unix,
            )
            for record in records if record.state.value in jobs.outcomes
            for name in jobs.channels if name in self.channels
        ]  # fmt: skip
        until_s = self._live.cluster.now_s()  # in this second more may end
        latest = {(each.workload.name, each.submission) for each in records if each.ended_s >= until_s}
        self._told = ToldWork(until_s, tuple(sorted(latest | (known if until_s == self._told.until_s else set()))))
        told = self._told
        try:
            stored = await self._in_file(lambda store: store.add_notices(messages, told, now_unix))
        except ClusterError as error:
            emit_limited("alerts-not-saved", level="error", cause=str(error)[:300])
            stored = self._without_file(messages, now_unix)
        await self._hand_over(stored)

    async def test(self, name: str) -> ChannelDelivery:
        """Send a test message now. NotFoundError where there is no such channel."""
        async with self._turn:
            await self._load()
        delivery = self.channels.get(name)
        if delivery is None:
            known = ", ".join(sorted(self.channels)) or "none"
            raise NotFoundError(f"there is no channel '{name}'; there are: {known}")
        now_s, now_unix = self._live.cluster.now_s(), time.time()
        alert = Alert(
            "test", "process", "kaiwo", Severity.INFO, now_s, now_s, fired_s=now_s, resolved_s=now_s,
            summary="this is a test; nothing is wrong",
        )  # fmt: skip
        await delivery.send_now(Message(name, alert, began_unix=now_unix - 1, ended_unix=now_unix))
        return delivery

    # -- silences and history

    async def add_silence(self, silence: Silence) -> Silence:
        async with self._turn:
            await self._load()
            added = await self._in_file(lambda store: store.add_silence(silence))
            self.silences.append(added)
            return added

    async def remove_silence(self, number: int) -> Silence:
        async with self._turn:
            await self._load()
            found = next((each for each in self.silences if each.id == number), None)
            if found is None:
                raise NotFoundError(f"there is no silence {number}; list them with: kaiwo alerts silences")
            await self._in_file(lambda store: store.remove_silence(number))
            self.silences.remove(found)
            return found

    async def past(self, most: int, rule: str = "", since_s: int = 0) -> list[Alert]:
        async with self._turn:
            await self._load()
            return await self._in_file(lambda store: store.past(most, rule, since_s))

    async def current(self) -> list[Alert]:
        """Pending and firing ones, the worst and oldest first."""
        if not self._is_loaded:
            async with self._turn:
                await self._load()
        order = lambda alert: (not alert.fired_s, -alert.severity.rank, alert.since_s, alert.key)  # noqa: E731
        return sorted(self.memory.alerts.values(), key=order)

    # -- the file of rules

    async def _follow_file(self) -> None:
        """Read the rules again when their file has changed. What is wrong is logged, and the old ones stay."""
        self.silences = [each for each in self.silences if each.until_s > self._live.cluster.now_s()]
        if not self._path or (mtime := _mtime(self._path)) == self._seen_mtime:
            return
        self._seen_mtime = mtime
        try:
            settings = await asyncio.to_thread(load_alert_settings, self._path)
        except ConfigError as error:
            self.problem = str(error)
            emit("alert-file-refused", level="error", error=str(error))
            return
        self._use(settings)
        emit("alert-file-read", rules=len(settings.rules), channels=len(settings.channels))
        await self._start_channels()

    def _use(self, settings: AlertSettings) -> None:
        if settings.jobs.channels and not self.settings.jobs.channels:
            self._jobs_since_s = self._live.cluster.now_s() - 1  # what ends in this second is told, too
        self.settings, self.problem = settings, ""
        self._rules = RuleSet(settings.rules, settings.inhibitions)

    async def _start_channels(self) -> None:
        """One delivery for each channel. Messages to a channel that is gone are kept in the file until it is back."""
        for name in [name for name, each in self.channels.items() if each.channel not in self.settings.channels]:
            del self.channels[name]
            if task := self._delivering.pop(name, None):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        for each in self.channels.values():
            each.jobs = self.settings.jobs
        fresh = [channel for channel in self.settings.channels if channel.name not in self.channels]
        for channel in fresh:
            delivery = ChannelDelivery(channel, self.settings.jobs, self._forget)
            delivery.firing = lambda channel=channel: self._firing(channel)  # type: ignore[misc]
            self.channels[channel.name] = delivery
            self._delivering[channel.name] = asyncio.create_task(delivery.run(), name=f"kaiwo-alerts-{channel.name}")
        if fresh and self._store is not None:
            names = {channel.name for channel in fresh}
            waiting = await self._in_file(lambda store: store.messages())
            await self._hand_over([each for each in waiting if each.message.channel in names])

    def _firing(self, channel: Channel) -> list[Message]:
        now_unix = time.time()
        return [
            Message(channel.name, alert, began_unix=self._fired_unix.get(alert.id, now_unix))
            for alert in self.memory.alerts.values() if alert.fired_s and alert.is_told and wants(channel, alert)
        ]  # fmt: skip

    async def _hand_over(self, stored: Sequence[StoredMessage]) -> None:
        for name in {each.message.channel for each in stored}:
            if name in self.channels:
                given_up = self.channels[name].add([each for each in stored if each.message.channel == name])
                if given_up:
                    await self._forget(given_up)

    # -- the file of alerts

    async def _load(self) -> None:
        """What the file has, before the first evaluation."""
        if self._is_loaded:
            return
        try:
            self.memory = await self._in_file(lambda store: store.load())
            self.silences = await self._in_file(lambda store: store.silences(self._live.cluster.now_s()))
        except ClusterError as error:
            emit("alerts-not-loaded", level="error", error=str(error))
        now_s, now_unix = self._live.cluster.now_s(), time.time()
        self._fired_unix = {
            alert.id: now_unix - max(0, now_s - alert.fired_s) for alert in self.memory.alerts.values() if alert.fired_s
        }
        self._is_loaded = True
        await self._start_channels()

    def _opened(self) -> AlertStore:
        """On the thread of the file."""
        if self._store is None:
            self._store = AlertStore(self._file, self._first_number)
        return self._store

    async def _in_file(self, work: Callable[[AlertStore], T]) -> T:
        """Once more in a new file when this one is damaged; it gets what is known of alerts and silences."""

        def tried() -> T:
            try:
                return work(self._opened())
            except DamagedFileError as error:
                if time.monotonic() - self._set_aside_at < SET_ASIDE_EVERY_S:
                    raise
                self._begin_anew(error)
                return work(self._opened())

        return await self._on_thread(tried)

    def _begin_anew(self, error: DamagedFileError) -> None:
        if self._store is not None:
            self._first_number = self._store.next_number
            self._store.close()
        self._store, self._set_aside_at = None, time.monotonic()
        kept = set_aside(self._file, int(time.time()))
        emit("alerts-damaged", level="error", error=str(error), kept=str(kept))
        self._opened().put(self.memory.alerts.values(), self.silences)

    def _without_file(self, messages: Sequence[Message], now_unix: float) -> list[StoredMessage]:
        first, self._numbers = self._numbers, self._numbers - len(messages)
        return [StoredMessage(first - at, now_unix, each) for at, each in enumerate(messages)]

    async def _forget(self, numbers: Sequence[int]) -> None:
        in_file = [number for number in numbers if number > 0]
        try:
            if in_file:
                await self._in_file(lambda store: store.delete_messages(in_file))
        except ClusterError as error:  # they may be told again after a restart
            emit_limited("alerts-not-saved", level="error", cause=str(error)[:300])

    def _close(self) -> None:
        if self._store is not None:
            with contextlib.suppress(ClusterError):
                self._store.save_signals(self.memory.signals)
            self._store.close()
        self._store = None

    async def _on_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def wants(channel: Channel, alert: Alert) -> bool:
    return alert.severity.rank >= channel.least.rank and matches(alert.rule, channel.rules)


def _mtime(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
