"""What 0.1.0 wrote is still read: its state.db, its journal, annotations on running pods, agents' messages.

The files in data/ were written by 0.1.0 itself. They are never made anew: a later version that cannot read them would
lose the work of whoever upgrades.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.device_grants import read_grant
from kaiwo.clusters.kubernetes.cache.nomination_annotations import write_nomination
from kaiwo.clusters.kubernetes.cache.planned_start_annotations import read_planned_start
from kaiwo.clusters.kubernetes.cache.queue_history import read_queue_status
from kaiwo.clusters.local.sqlite_store import Store
from kaiwo.devices.agent_messages import decode_line
from kaiwo.history import JournalReader
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.obstacle import Obstacle
from kaiwo.model.plan import Nomination, Plan
from kaiwo.runtime.loop.replay import replay
from tests.conftest import IS_QUICK

DATA = Path(__file__).parent / "data"
EXPECTED: dict[str, Any] = json.loads(gzip.decompress((DATA / "expected.json.gz").read_bytes()))
WIRE = EXPECTED["wire"]
NAMES_THEN = {"workloads": "lives", "nominations": "kept", "planned_starts": "promises"}  # of the state's tables


def plain(value: Any) -> Any:
    """As JSON shows it."""
    return json.loads(msgspec.json.encode(value))


def _by_text_key(rows: dict[Any, Any]) -> dict[str, Any]:
    return {key if isinstance(key, str) else "|".join(map(str, key)): plain(value) for key, value in rows.items()}


def test_every_row_of_a_state_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(gzip.decompress((DATA / "state.db.gz").read_bytes()))
    store = Store(tmp_path / "state.db")
    rows = store.load()
    store.close()
    found = {NAMES_THEN.get(table, table): _by_text_key(kept) for table, kept in rows.items()}
    younger = {
        table: found.pop(table) for table in ("earlier", "attempts", "recoveries", "defragmentation", "move_steps")
    }
    assert not any(younger.values())
    assert found == EXPECTED["rows"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    (folder / "journal").mkdir()
    (folder / "journal" / "00000001.journal").write_bytes((DATA / "00000001.journal").read_bytes())
    return folder


def test_every_cycle_of_a_journal_gives_the_same_decisions(home: Path) -> None:
    reader = JournalReader(home / "journal")
    assert reader.newest - reader.oldest > 80
    numbers = range(reader.newest, reader.oldest - 1, -7 if IS_QUICK else -1)
    for number in numbers:
        result = replay(str(home), number)
        assert decisions(result.now) == decisions(result.then), number
        now, then = obstacles(result.now), obstacles(result.then)
        assert then.keys() <= now.keys(), number  # and more, whose facts 0.1.0 wrote as text: they count as changed
        assert all(map(is_as_before, then.values(), (now[key] for key in then))), number


def decisions(plan: Plan) -> Any:
    """All of a plan but why the rest waits, and what queues are charged beyond the devices' parts.

    New plugins came that decide nothing here. What was tried in vain without them is tried once more: that takes steps.
    """
    starts = tuple(replace(start, devices=_as_granted(start.devices)) for start in plan.starts)
    nominations = tuple(replace(each, devices=_as_granted(each.devices)) for each in plan.nominations)
    told = replace(plan, waits=(), starts=starts, nominations=nominations)
    return plain(replace(told, rules="", steps=0, look_again_s=0))


def _as_granted(shares: tuple[Share, ...]) -> tuple[Share, ...]:
    return tuple(replace(share, round_milli=0) for share in shares)


ROUNDED_MILLI = 2  # a queue is charged for memory rounded up: in 0.1.0 it was rounded down


def obstacles(plan: Plan) -> dict[tuple[str, str], tuple[Obstacle, ...]]:
    """By class, what is in the way. The wording may change."""
    return {(wait.queue, wait.shape): wait.obstacles for wait in plan.waits}


def is_as_before(then: tuple[Obstacle, ...], now: tuple[Obstacle, ...]) -> bool:
    """The same codes, needs and amounts, but for the rounding of memory."""
    return [each.reason for each in now] == [each.reason for each in then] and all(
        max(abs(new.need - old.need), abs(new.have - old.have)) <= (ROUNDED_MILLI if old.unit == "milli-gpu" else 0)
        for old, new in zip(then, now, strict=True)
    )


def test_the_devices_on_a_bound_pod_are_read() -> None:
    assert plain(read_grant(WIRE["binding_annotations"])) == WIRE["granted"]


def test_space_that_was_kept_for_a_pod_is_read() -> None:
    kept = WIRE["kept_space"]
    nomination = msgspec.json.decode(kept["text"], type=Nomination)
    assert plain(nomination) == kept["value"]
    assert json.loads(write_nomination(nomination)) == json.loads(kept["text"])


def test_a_planned_start_on_a_pod_is_read() -> None:
    planned = WIRE["planned_place"]
    assert plain(read_planned_start(planned["text"], "lab/big")) == planned["value"]


def test_what_a_queue_remembers_in_its_status_is_read() -> None:
    status = read_queue_status(msgspec.Raw(json.dumps(WIRE["queue_status"]).encode()))
    assert status.usage is not None
    assert (status.usage.at_seconds, status.usage.gpu) == (1_794_830_000, "0.250000000")
    assert status.stops is not None
    assert [(stop.workload, stop.queues, stop.moved) for stop in status.stops] == [("lab/x", ("lab",), True)]


@pytest.mark.parametrize("at", range(3))
def test_the_lines_of_an_older_agent_are_read(at: int) -> None:
    value = WIRE["agent_values"][at]
    assert _known_then(plain(decode_line(WIRE["agent_lines"][at].encode())), value) == value


def _known_then(now: Any, then: Any) -> Any:
    """Without the fields that came later, which an older agent leaves empty."""
    if isinstance(then, dict):
        return {name: _known_then(now[name], each) for name, each in then.items()}
    if isinstance(then, list) and len(then) == len(now):
        return [_known_then(*pair) for pair in zip(now, then, strict=True)]
    return now
