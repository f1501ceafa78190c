"""Every number in docs/fairness.md is what the code says."""

import re

import numpy as np
import pytest

from kaiwo.model.queue import UNLIMITED, Queue, QueueAmounts, SharePolicy
from kaiwo.queues.fair_share import DEFAULT_RULES, QueueDemand, fair_shares, share_breakdown
from kaiwo.queues.past_usage import WHOLE_PART
from kaiwo.snapshot.queue_table import GPU, EditableQueueTable
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "fairness.md").read_text()
EXAMPLES = re.findall(r"```shares\n(.*?)```", PAGE, re.DOTALL)


def test_there_is_an_example_for_every_rule() -> None:
    assert len(EXAMPLES) == 11


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_example_is_right(example: str) -> None:
    settings, header, *rows = split(example)
    names = header.replace("|", " ").split()
    queues = [dict(zip(names, row.replace("|", " ").split(), strict=True)) for row in rows]
    table = EditableQueueTable({each["queue"]: as_queue(each, age) for age, each in enumerate(queues)})
    by_name = {each["queue"]: each for each in queues}
    request, past = (np.zeros((len(queues), 3), np.int64) for _ in range(2))
    oldest = np.zeros(len(queues), np.int64)
    for row, name in enumerate(table.names):
        request[row, GPU] = milli(by_name[name]["wants"])
        past[row, GPU] = round(float(by_name[name].get("past", 0)) * WHOLE_PART)
        oldest[row] = int(by_name[name].get("waits", 0))
    rules = DEFAULT_RULES._replace(
        root_policy=SharePolicy(settings.get("policy", "DRF")),
        usage_strength_milli=milli(settings.get("strength", "0")),
    )
    wants = QueueDemand(np.array([milli(settings["total"]), 0, 0]), request, oldest, past)
    shares = fair_shares(table, wants, rules)
    for row, name in enumerate(table.names):
        terms = share_breakdown(table, wants, shares, row)[GPU]
        found = (terms.deserved, terms.whole, terms.remainder, terms.share)
        assert found == tuple(milli(by_name[name][word]) for word in ("deserved", "part", "rest", "share")), name


def split(example: str) -> list:
    lines = example.strip().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("queue"))
    return [dict(line.split() for line in lines[:at]), *lines[at:]]


def as_queue(each: dict[str, str], age: int) -> Queue:
    limit = each.get("limit", "-")
    return Queue(
        each["queue"],
        each.get("parent", "-").replace("-", ""),
        priority=int(each.get("priority", 100)),
        gpu=QueueAmounts(milli(each["quota"]), UNLIMITED if limit == "-" else milli(limit), int(each.get("weight", 1))),
        created_s=age,
    )


def milli(number: str) -> int:
    return round(float(number) * 1000)
