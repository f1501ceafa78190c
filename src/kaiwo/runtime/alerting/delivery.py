"""Tell the channels: in order, many messages together, again after a failure, each until it was taken.

In:    stored messages.   Out: requests and mails; what was taken is deleted from the store.
Never: lets one channel wait for another, an alert for notices, or one person's notices for those of another; blocks an
       evaluation, or shows a secret.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from kaiwo.model.alerts.channel import Channel, ChannelType, JobNotices
from kaiwo.runtime.alerting.send_http import NotTaken, post_json
from kaiwo.runtime.log import emit, emit_limited
from kaiwo.telemetry.alerts.alert_store import Message, StoredMessage
from kaiwo.telemetry.alerts.message_forms import alertmanager_form, chat_form, mail_form, webhook_form

AT_ONCE = 100
FIRST_RETRY_S, LONGEST_RETRY_S = 2.0, 600.0
GIVE_UP_S = 3 * 86_400  # nobody wants to hear of it any more
MAX_WAITING = 10_000  # of one channel; more are given up
REPEAT_S = 60.0  # Alertmanager forgets what is not repeated
FORGET_S = 5 * REPEAT_S
MAX_SECRET = 10_000


class ChannelStatus(msgspec.Struct):
    delivered: int = 0  # messages
    failures: int = 0  # attempts
    dropped: int = 0
    problem: str = ""  # why the last attempt failed; empty: it did not


class WaitingMessages:
    """What one channel is still to be told: alerts first, then the notices of each user in turn.

    Whoever ends much work neither delays alerts nor pushes them out.
    """

    def __init__(self) -> None:
        self._alerts: list[StoredMessage] = []
        self._notices: dict[str, list[StoredMessage]] = {}  # by user, whose turn is next first
        self._many = 0

    def __len__(self) -> int:
        return self._many

    def add(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Returns those that are given up because too many wait."""
        for each in messages:
            user = each.message.user
            (self._alerts if each.message.alert is not None else self._notices.setdefault(user, [])).append(each)
        self._many += len(messages)
        given_up: list[StoredMessage] = []
        while (over := self._many - MAX_WAITING) > 0:
            most = max(self._notices.values(), key=len, default=self._alerts)
            second = max((len(each) for each in self._notices.values() if each is not most), default=0)
            cut = min(over, max(1, len(most) - second))
            given_up += most[:cut]
            del most[:cut]
            self._many -= cut
        self._notices = {user: each for user, each in self._notices.items() if each}
        return given_up

    def next(self, most: int) -> list[StoredMessage]:
        batch = self._alerts[:most]
        for each in self._notices.values():
            if len(batch) >= most:
                break
            batch += each[: most - len(batch)]
        return batch

    def remove(self, messages: Sequence[StoredMessage]) -> None:
        """Those to whom they were have had their turn."""
        gone = {each.number for each in messages}
        kept = [each for each in self._alerts if each.number not in gone]
        self._many -= len(self._alerts) - len(kept)
        self._alerts = kept
        for user in {each.message.user for each in messages if each.message.alert is None} & set(self._notices):
            before = self._notices.pop(user)
            if left := [each for each in before if each.number not in gone]:
                self._notices[user] = left
            self._many -= len(before) - len(left)


class ChannelDelivery:
    """One channel, and what it is still to be told."""

    def __init__(self, channel: Channel, jobs: JobNotices, taken: Callable[[Sequence[int]], Awaitable[None]]) -> None:
        self.channel, self.status = channel, ChannelStatus()
        self.firing: Callable[[], Sequence[Message]] = lambda: ()  # what fires now, for those that must hear it again
        self.first_retry_s, self.repeat_s = FIRST_RETRY_S, REPEAT_S
        self.jobs, self._taken = jobs, taken
        self._waiting = WaitingMessages()
        self._singly = 0  # so many messages are told one by one, because one of them was refused
        self._come = asyncio.Event()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, messages: Sequence[StoredMessage]) -> list[int]:
        """Returns the numbers of those that are given up because too many wait."""
        given_up = self._waiting.add(messages)
        self.status.dropped += len(given_up)
        self._come.set()
        return [each.number for each in given_up]

    async def run(self) -> None:
        """Deliver until cancelled."""
        failed = 0
        while True:
            if not self._waiting:
                self._come.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.repeat_s if self._repeats else None):
                        await self._come.wait()
            try:
                problem = await self.deliver()
            except Exception as error:  # the edge of the loop: without it, the channel would be silent for ever
                problem = self.status.problem = type(error).__name__
                self.status.failures += 1
            failed = failed + 1 if problem else 0
            if problem:
                emit_limited("alerts-not-delivered", level="warning", cause=self.channel.name, error=problem)
                await asyncio.sleep(min(LONGEST_RETRY_S, self.first_retry_s * 2 ** min(failed - 1, 20)))

    @property
    def _repeats(self) -> bool:
        return self.channel.type is ChannelType.ALERTMANAGER

    async def deliver(self) -> str:
        """One attempt with the oldest messages. Returns why it failed; empty: it did not."""
        now_unix = time.time()
        batch = self._next_batch()
        late = [each for each in batch if now_unix - each.made_unix > GIVE_UP_S]
        fresh = [each for each in batch if now_unix - each.made_unix <= GIVE_UP_S]
        if late:
            emit("alerts-given-up", level="error", channel=self.channel.name, messages=len(late))
            await self._done(late, is_dropped=True)
        repeated = [] if self._singly and fresh else [each for each in self.firing() if self._repeats]
        if not fresh and not repeated:
            return ""
        refusal = await self._send([each.message for each in fresh], repeated)
        if refusal is None:
            self.status.problem = ""
            self._singly = max(0, self._singly - len(fresh))
            await self._done(fresh, is_dropped=False)
            return ""
        self.status.failures += 1
        self.status.problem = refusal.why
        if refusal.is_final and len(fresh) + len(repeated) > 1:
            self._singly = len(fresh)  # one of them may be wrong, and the others need not go with it
        elif refusal.is_final and fresh:
            self._singly = max(0, self._singly - 1)
            emit("alerts-refused", level="error", channel=self.channel.name, messages=len(fresh), error=refusal.why)
            await self._done(fresh, is_dropped=True)
        return refusal.why

    async def send_now(self, message: Message) -> None:
        """One attempt beside those that wait; the status says how it went."""
        refusal = await self._send([message], ())
        self.status.problem = "" if refusal is None else refusal.why
        self.status.failures += refusal is not None
        self.status.delivered += refusal is None

    def _next_batch(self) -> list[StoredMessage]:
        """Of a mail only those for the same people."""
        batch = self._waiting.next(1 if self._singly else AT_ONCE)
        if self.channel.mail is not None and batch:
            first = batch[0].message
            batch = [each for each in batch if self._recipients(each.message) == self._recipients(first)]
        return batch

    async def _done(self, messages: Sequence[StoredMessage], is_dropped: bool) -> None:
        numbers = {each.number for each in messages}
        self._waiting.remove(messages)
        if is_dropped:
            self.status.dropped += len(numbers)
        else:
            self.status.delivered += len(numbers)
        if numbers:
            await self._taken(sorted(numbers))

    # -- one attempt

    async def _send(self, messages: Sequence[Message], repeated: Sequence[Message]) -> NotTaken | None:
        channel = self.channel
        try:
            if channel.mail is not None:
                return await self._send_mail(messages)
            url = channel.url or read_secret(channel.url_file)
            token = read_secret(channel.token_file) if channel.token_file else ""
        except OSError as error:
            return NotTaken(f"the file of its secret cannot be read: {error.strerror}", False)
        except ValueError as error:
            return NotTaken(str(error), False)
        match channel.type:
            case ChannelType.ALERTMANAGER:
                known = {each.alert.id for each in messages if each.alert is not None}
                every = [
                    *(each for each in repeated if each.alert is not None and each.alert.id not in known),
                    *messages,
                ]
                now_unix = time.time()
                body: object = alertmanager_form(every, now_unix, now_unix + FORGET_S)
                if not body:
                    return None  # a notice: it is not for Alertmanager
                url = url.rstrip("/") + "/api/v2/alerts"
            case ChannelType.SLACK:
                body = chat_form(messages)
            case _:
                body = webhook_form(messages)
        return await post_json(url, body, token, channel.ca_file)

    async def _send_mail(self, messages: Sequence[Message]) -> NotTaken | None:
        mail = self.channel.mail
        assert mail is not None
        to = self._recipients(messages[0])
        if not to:
            return NotTaken("nobody's address is known", True)
        password = read_secret(mail.password_file) if mail.password_file else ""
        from kaiwo.runtime.alerting.send_mail import send_mail  # imports an SMTP client, which few need

        return await asyncio.to_thread(send_mail, mail, to, mail_form(messages), password, self.channel.ca_file)

    def _recipients(self, message: Message) -> tuple[str, ...]:
        """Of alerts, those of the channel; of a notice, the person whose work it is."""
        mail = self.channel.mail
        if mail is None or message.alert is not None:
            return mail.to if mail is not None else ()
        address = address_of(self.jobs, message.user)
        return (address,) if address else mail.to


def address_of(jobs: JobNotices, user: str) -> str:
    """A user's mail address; empty: not known. A name that is no part of an address gives none."""
    if user in jobs.people:
        return jobs.people[user]
    is_plain = user.isascii() and 0 < len(user) <= 64 and all(sign.isalnum() or sign in "._-" for sign in user)
    return jobs.address.replace("{user}", user) if jobs.address and is_plain else ""


def read_secret(path: str) -> str:
    text = Path(path).read_text(encoding="utf-8")[:MAX_SECRET].strip()
    if not text or not text.isprintable():
        raise ValueError("the file of its secret is not one line of text")
    return text
