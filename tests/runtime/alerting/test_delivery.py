"""Channels get every message, in order, also after failures; nothing secret is shown, and no address is a way in."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from kaiwo.model.alerts.alert import Alert
from kaiwo.model.alerts.alert_rule import Severity
from kaiwo.model.alerts.channel import Channel, ChannelType, JobNotices, MailSettings
from kaiwo.runtime.alerting import delivery as delivery_module
from kaiwo.runtime.alerting.delivery import (
    AT_ONCE,
    GIVE_UP_S,
    MAX_WAITING,
    ChannelDelivery,
    WaitingMessages,
    address_of,
)
from kaiwo.runtime.alerting.send_http import NotTaken, post_json
from kaiwo.telemetry.alerts.alert_store import Message, StoredMessage
from tests.runtime.alerting.receivers import http_receiver, mail_receiver
from tests.waiting import run, until

SECRET = "T0-very-secret"
NO_NOTICES = JobNotices()


def stored(number: int, channel: str = "ops", **fields: object) -> StoredMessage:
    alert = Alert(f"rule-{number}", "gpu", "n/g", Severity.CRITICAL, 1, 1, fired_s=2, summary="<!here> it is hot")
    return StoredMessage(number, time.time(), Message(channel, alert, began_unix=1_700_000_000.0, **fields))  # type: ignore[arg-type]


class Taken:
    def __init__(self) -> None:
        self.numbers: list[int] = []

    async def __call__(self, numbers: Sequence[int]) -> None:
        self.numbers += numbers


@contextlib.asynccontextmanager
async def delivering(channel: Channel, jobs: JobNotices = NO_NOTICES) -> AsyncIterator[tuple[ChannelDelivery, Taken]]:
    taken = Taken()
    delivery = ChannelDelivery(channel, jobs, taken)
    delivery.first_retry_s = 0.01
    running = asyncio.create_task(delivery.run())
    try:
        yield delivery, taken
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_a_receiver_that_fails_gets_every_message_in_order_once_it_answers() -> None:
    async def story() -> None:
        async with http_receiver() as receiver:
            receiver.answers = [500, 503, 429]
            async with delivering(Channel("ops", ChannelType.WEBHOOK, receiver.url + "/in")) as (delivery, taken):
                delivery.add([stored(1), stored(2)])
                await until(lambda: len(taken.numbers) == 2)
                delivery.add([stored(3)])
                await until(lambda: len(taken.numbers) == 3)
                assert delivery.status.failures == 3
                assert delivery.status.problem == ""
            told = [alert["rule"] for body in receiver.bodies for alert in body["alerts"]]
            assert told == ["rule-1", "rule-2", "rule-3"]
            assert receiver.bodies[0]["alerts"][0]["id"] == "rule-1|n/g|1"
            assert receiver.bodies[0]["alerts"][0]["startsAt"] == "2023-11-14T22:13:20.000Z"

    run(story())


def test_the_pause_doubles_with_each_failure() -> None:
    async def story() -> None:
        async with http_receiver() as receiver:
            receiver.answers = [500] * 1000
            async with delivering(Channel("ops", ChannelType.WEBHOOK, receiver.url)) as (delivery, _):
                delivery.first_retry_s = 0.05
                delivery.add([stored(1)])
                await asyncio.sleep(1.0)  # 0, 0.05, 0.15, 0.35, 0.75: without a growing pause there would be 20
                assert 2 <= receiver.asked <= 6

    run(story())


def test_a_message_that_can_never_be_taken_does_not_hold_up_the_others() -> None:
    async def story() -> None:
        async with http_receiver() as receiver:
            receiver.answers = [400]
            async with delivering(Channel("ops", ChannelType.WEBHOOK, receiver.url)) as (delivery, taken):
                delivery.add([stored(1)])
                await until(lambda: taken.numbers == [1])
                delivery.add([stored(2)])
                await until(lambda: taken.numbers == [1, 2])
                assert (delivery.status.dropped, delivery.status.delivered) == (1, 1)

    run(story())


def test_of_messages_that_are_refused_together_only_the_wrong_one_is_dropped() -> None:
    async def story() -> None:
        async with http_receiver() as receiver:
            receiver.answers = [422, 200, 422, 200]
            async with delivering(Channel("ops", ChannelType.WEBHOOK, receiver.url)) as (delivery, taken):
                delivery.add([stored(1), stored(2), stored(3)])
                await until(lambda: taken.numbers == [1, 2, 3])
                assert (delivery.status.dropped, delivery.status.delivered) == (1, 2)
                delivery.add([stored(4), stored(5)])
                await until(lambda: len(taken.numbers) == 5)
            told = [[alert["rule"] for alert in body["alerts"]] for body in receiver.bodies]
            assert told == [["rule-1"], ["rule-3"], ["rule-4", "rule-5"]]

    run(story())


def test_a_failure_that_nobody_expected_does_not_end_a_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with http_receiver() as receiver:
            failing = [RuntimeError("can't start new thread")]

            async def post(*given: str) -> NotTaken | None:
                if failing:
                    raise failing.pop()
                return await post_json(*given)

            monkeypatch.setattr(delivery_module, "post_json", post)
            async with delivering(Channel("ops", ChannelType.WEBHOOK, receiver.url)) as (delivery, taken):
                delivery.add([stored(1)])
                await until(lambda: taken.numbers == [1])
                assert delivery.status.failures == 1

    run(story())


def notice(number: int, user: str) -> StoredMessage:
    message = Message("ops", subject=f"default/{user}-{number}", code="workload-failed", user=user)
    return StoredMessage(number, time.time(), message)


def test_who_ends_much_work_delays_no_alert_and_pushes_out_none() -> None:
    waiting = WaitingMessages()
    waiting.add([stored(1), notice(2, "ada")])
    flood = [notice(number, "mallory") for number in range(3, 2 * MAX_WAITING)]
    given_up = waiting.add([*flood, notice(2 * MAX_WAITING, "grace"), stored(2 * MAX_WAITING + 1)])
    assert {each.message.user for each in given_up} == {"mallory"}
    assert len(waiting) == MAX_WAITING
    first = waiting.next(AT_ONCE)
    assert [each.number for each in first[:3]] == [1, 2 * MAX_WAITING + 1, 2]
    waiting.remove(first)
    assert waiting.next(AT_ONCE)[0].message.user == "grace", "each person's turn comes"
    for _ in range(2 * MAX_WAITING):
        waiting.remove(waiting.next(AT_ONCE))
    assert len(waiting) == 0


def test_of_too_many_alerts_the_oldest_are_given_up() -> None:
    waiting = WaitingMessages()
    assert waiting.add([stored(number) for number in range(MAX_WAITING + 3)])[-1].number == 2
    assert len(waiting) == MAX_WAITING


def test_what_has_waited_for_three_days_is_given_up() -> None:
    async def story() -> None:
        async with http_receiver() as receiver:
            async with delivering(Channel("ops", ChannelType.WEBHOOK, receiver.url)) as (delivery, taken):
                delivery.add([stored(1)._replace(made_unix=time.time() - GIVE_UP_S - 1), stored(2)])
                await until(lambda: taken.numbers == [1, 2])
            assert [alert["rule"] for alert in receiver.bodies[0]["alerts"]] == ["rule-2"]

    run(story())


def test_a_token_and_an_address_come_from_files_and_are_never_shown(tmp_path: Path) -> None:
    async def story() -> None:
        async with http_receiver() as receiver:
            (tmp_path / "url").write_text(f"{receiver.url}/{SECRET}\n")
            (tmp_path / "token").write_text(SECRET + "\n")
            channel = Channel(
                "ops", ChannelType.SLACK, url_file=str(tmp_path / "url"), token_file=str(tmp_path / "token")
            )
            async with delivering(channel) as (delivery, taken):
                receiver.answers = [500]
                delivery.add([stored(1)])
                await until(lambda: taken.numbers == [1])
                assert SECRET not in repr(channel) + repr(delivery.status)
            assert receiver.headers[0]["authorization"] == f"Bearer {SECRET}"
            assert receiver.paths == [f"/{SECRET}"]
            assert receiver.bodies[0]["text"] == "CRITICAL rule-1: &lt;!here&gt; it is hot", (
                "nobody is called by markup"
            )

    run(story())


@pytest.mark.parametrize("url", ["http://192.0.2.1/", "HTTP://gpu-ops.example.com/"])
def test_a_token_never_leaves_the_machine_in_the_clear(tmp_path: Path, url: str) -> None:
    """Also when the address comes from a file, which may be written later."""

    async def story() -> None:
        (tmp_path / "url").write_text(url)
        (tmp_path / "token").write_text(SECRET)
        channel = Channel("ops", ChannelType.WEBHOOK, url_file=f"{tmp_path}/url", token_file=f"{tmp_path}/token")
        async with delivering(channel) as (delivery, _):
            delivery.add([stored(1)])
            await until(lambda: delivery.status.problem)
            assert delivery.status.problem == "a token is only sent over https:// or to this machine"

    run(story())


def test_an_answer_without_tls_is_called_that() -> None:
    async def story() -> None:
        async def plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
            refusal = await post_json(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/", {})
            assert refusal is not None
            assert refusal.why.startswith("TLS: ")

    run(story())


def test_a_secret_that_cannot_be_read_is_a_problem_that_goes_away(tmp_path: Path) -> None:
    async def story() -> None:
        async with http_receiver() as receiver:
            channel = Channel("ops", ChannelType.SLACK, url_file=str(tmp_path / "url"))
            async with delivering(channel) as (delivery, taken):
                delivery.add([stored(1)])
                await until(lambda: delivery.status.problem)
                assert delivery.status.problem == "the file of its secret cannot be read: No such file or directory"
                (tmp_path / "url").write_text(receiver.url)
                await until(lambda: taken.numbers == [1])

    run(story())


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://169.254.169.254/latest/meta-data", "the address is not an address to send to"),
        ("http://[fe80::1]/", "the address is not an address to send to"),
        ("http://[::ffff:169.254.169.254]/", "the address is not an address to send to"),
        ("http://0.0.0.0/", "the address is not an address to send to"),
        ("file:///etc/passwd", "the address must begin with https:// or http://"),
        ("http://user:password@example.com/", "the address must not contain a user or password"),
    ],
)
def test_an_address_that_leads_where_it_must_not_is_refused(url: str, why: str) -> None:
    refusal = run(post_json(url, {}))
    assert refusal is not None
    assert refusal.why.startswith(why)
    assert "password@" not in refusal.why


def test_a_name_that_leads_to_a_refused_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 80))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    refusal = run(post_json("http://metadata.example.com/", {}))
    assert refusal is not None
    assert "ConnectorDNSError" in refusal.why or "OSError" in refusal.why


def test_a_redirect_is_not_followed() -> None:
    async def story() -> None:
        async with http_receiver() as receiver:
            receiver.answers = [302]
            refusal = await post_json(receiver.url, {})
            assert refusal is not None
            assert refusal.why == "HTTP status 302"

    run(story())


def mail_channel(server: str) -> Channel:
    mail = MailSettings(server, "kaiwo@example.com", ("ops@example.com",), security="none")
    return Channel("mail", ChannelType.EMAIL, mail=mail)


def test_a_mail_goes_to_the_channel_and_a_notice_to_the_person_whose_work_it_is() -> None:
    async def story() -> None:
        async with mail_receiver() as receiver:
            jobs = JobNotices(("mail",), ("failed",), "{user}@example.com", {"grace": "g.hopper@example.org"})
            async with delivering(mail_channel(receiver.server), jobs) as (delivery, taken):
                notices = [
                    StoredMessage(at, time.time(), Message("mail", subject="default/train", code="workload-failed",
                                                           user=user, text="exit code 1"))
                    for at, user in enumerate(("ada", "grace", "mallory\r\nBcc: all@example.com"), start=2)
                ]  # fmt: skip
                delivery.add([stored(1, "mail"), *notices])
                await until(lambda: len(taken.numbers) == 4)
            assert [to for to, _ in receiver.mails] == [
                ["ops@example.com"], ["ada@example.com"], ["g.hopper@example.org"],
            ]  # fmt: skip
            assert "Subject: Kaiwo: 2 alerts: CRITICAL rule-1: <!here> it is hot" in receiver.mails[0][1]
            assert "default/train of mallory  Bcc: all@example.com failed" in receiver.mails[0][1], "one mail, one line"
            assert "default/train of ada failed: exit code 1" in receiver.mails[1][1]
            assert not any(line.startswith("Bcc:") for _, text in receiver.mails for line in text.splitlines())

    run(story())


def test_a_mail_that_everybody_refuses_is_dropped_and_the_next_one_goes() -> None:
    async def story() -> None:
        async with mail_receiver() as receiver:
            receiver.refuse = {"ada@example.com"}
            jobs = JobNotices(("mail",), ("failed",), "{user}@example.com")
            async with delivering(mail_channel(receiver.server), jobs) as (delivery, taken):
                message = Message("mail", subject="default/train", code="workload-failed", user="ada")
                delivery.add([StoredMessage(1, time.time(), message), stored(2, "mail")])
                await until(lambda: sorted(taken.numbers) == [1, 2])
                assert (delivery.status.dropped, delivery.status.delivered) == (1, 1)

    run(story())


def test_a_mail_server_without_encryption_gets_no_mail_unless_that_was_asked_for() -> None:
    async def story() -> None:
        async with mail_receiver() as receiver:
            mail = MailSettings(receiver.server, "kaiwo@example.com", ("ops@example.com",))
            async with delivering(Channel("mail", ChannelType.EMAIL, mail=mail)) as (delivery, _):
                delivery.add([stored(1, "mail")])
                await until(lambda: delivery.status.problem)
            assert receiver.mails == []

    run(story())


def test_a_password_is_never_sent_in_the_clear(tmp_path: Path) -> None:
    async def story() -> None:
        async with mail_receiver() as receiver:
            (tmp_path / "password").write_text(SECRET)
            mail = MailSettings(
                receiver.server, "kaiwo@example.com", ("ops@example.com",), "kaiwo", str(tmp_path / "password"), "none"
            )
            async with delivering(Channel("mail", ChannelType.EMAIL, mail=mail)) as (delivery, _):
                delivery.add([stored(1, "mail")])
                await until(lambda: delivery.status.problem)
                assert "in the clear" in delivery.status.problem
            assert receiver.lines == []

    run(story())


@pytest.mark.parametrize("user", ["", "a@b", "ada\n", "ada@evil.example.com,x", "ä", "a" * 65, "../ada", "a b"])
def test_a_name_that_is_no_part_of_an_address_gives_none(user: str) -> None:
    assert address_of(JobNotices(address="{user}@example.com"), user) == ""
