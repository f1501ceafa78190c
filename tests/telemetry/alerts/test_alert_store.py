"""The file of alerts: what was evaluated is there after a restart, with what is still to be told."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from kaiwo.model.alerts.alert import Alert, Silence
from kaiwo.model.alerts.alert_rule import Severity
from kaiwo.model.errors import DamagedFileError
from kaiwo.runtime.alerting.load_settings import built_in_settings
from kaiwo.telemetry.alerts.alert_store import FILE, AlertStore, Message
from kaiwo.telemetry.alerts.evaluate import AlertMemory, Evaluation, evaluate
from kaiwo.telemetry.alerts.rule_set import RuleSet
from tests.telemetry.alerts.samples import HealthyCluster

NOW_S = 1_700_000_000
HOT = ("gpu", "temperature_c", "node-1/gpu-2")


def alert(rule: str, **fields: object) -> Alert:
    return Alert(rule, "gpu", "node-1/gpu-0", Severity.WARNING, NOW_S, NOW_S, **fields)  # type: ignore[arg-type]


def done(*changed: Alert, dropped: tuple[Alert, ...] = ()) -> Evaluation:
    live = {each.key: each for each in changed if not each.resolved_s}
    return Evaluation(AlertMemory(alerts=live), changed, dropped, ())


def test_an_evaluation_goes_on_after_a_restart_as_if_there_had_been_none(tmp_path: Path) -> None:
    """The same samples, with a restart in the middle and without one, give the same alerts and the same numbers."""
    rules, cluster = RuleSet(built_in_settings().rules), HealthyCluster(3)
    samples = [cluster.sample({HOT: 120} if at > 100 else {}) for at in range(130)]
    memory, restarted = AlertMemory(), AlertMemory()
    for at, sample in enumerate(samples):
        now_s = NOW_S + 10 * at
        one = evaluate(rules, memory, sample, now_s)
        other = evaluate(rules, restarted, sample, now_s)
        assert [each.id for each in one.told] == [each.id for each in other.told]
        memory, restarted = one.memory, other.memory
        store = AlertStore(tmp_path / FILE)
        store.save(other, (), (now_s, 0.0))
        if at % 13 == 0 or at in (101, 105):
            store.save_signals(restarted.signals)
            restarted = store.load()
        store.close()
    assert ("gpu-hot", HOT[2]) in restarted.alerts
    assert {key: replace(each, seen_s=0) for key, each in memory.alerts.items()} == {
        key: replace(each, seen_s=0) for key, each in restarted.alerts.items()
    }


def test_what_is_resolved_moves_to_the_past_and_what_was_only_pending_is_gone(tmp_path: Path) -> None:
    store = AlertStore(tmp_path / FILE)
    store.save(done(alert("a", fired_s=NOW_S), alert("b")), (), (NOW_S, 0.0))
    assert sorted(rule for rule, _ in store.load().alerts) == ["a", "b"]
    over = alert("a", fired_s=NOW_S, resolved_s=NOW_S + 60)
    store.save(done(over, dropped=(alert("b"),)), (), (NOW_S + 60, 0.0))
    assert store.load().alerts == {}
    assert store.past(10) == [over]
    assert store.past(10, rule="b") == store.past(10, since_s=NOW_S + 61) == []


def test_messages_wait_in_the_file_until_they_are_taken(tmp_path: Path) -> None:
    store = AlertStore(tmp_path / FILE)
    told = [Message("ops", alert("a", fired_s=NOW_S)), Message("mail", subject="default/train", code="workload-failed")]
    numbers = [each.number for each in store.save(done(), told, (NOW_S, 5.0))]
    store.close()
    again = AlertStore(tmp_path / FILE)
    assert [each.message for each in again.messages()] == told
    again.delete_messages(numbers[:1])
    assert [each.message.channel for each in again.messages()] == ["mail"]
    (later,) = again.save(done(), told[:1], (NOW_S, 6.0))
    assert later.number > max(numbers), "a number is not used for two messages"


def test_silences_are_kept_until_they_are_over(tmp_path: Path) -> None:
    store = AlertStore(tmp_path / FILE)
    short, long = (store.add_silence(Silence(0, "hot", "*", NOW_S + seconds)) for seconds in (60, 600))
    assert store.silences(NOW_S) == [short, long]
    assert store.silences(NOW_S + 60) == [long]
    store.remove_silence(long.id)
    assert store.silences(NOW_S + 60) == []


def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    AlertStore(tmp_path / FILE).close()
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_a_damaged_file_is_told_from_a_disk_that_is_full(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"this is no database, and long enough to be read as one" * 100)
    with pytest.raises(DamagedFileError) as damaged:
        AlertStore(tmp_path / FILE).load()
    assert str(tmp_path / FILE) in str(damaged.value)


KILLED = """
import sys
from pathlib import Path
from tests.telemetry.alerts.test_alert_store import NOW_S, AlertStore, Message, alert, done
store = AlertStore(Path(sys.argv[1]))
for at in range(100_000):
    fired = alert(f"rule-{at}", fired_s=NOW_S + at)
    store.save(done(fired), [Message("ops", fired)], (NOW_S + at, 0.0))
    print(at, flush=True)
"""


def test_a_kill_at_any_moment_loses_no_alert_and_no_message(tmp_path: Path) -> None:
    for round_ in range(3):
        path = tmp_path / f"{round_}.db"
        writer = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        for _ in range(20 + 7 * round_):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.wait()
        said = int(rest[-1]) if rest else 19 + 7 * round_
        store = AlertStore(path)
        live = {rule for rule, _ in store.load().alerts}
        assert {f"rule-{at}" for at in range(said + 1)} <= live
        assert {each.message.alert.rule for each in store.messages() if each.message.alert} == live
        store.close()
