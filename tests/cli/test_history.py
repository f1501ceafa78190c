"""`kaiwo history`, `kaiwo seff` and `kaiwo get --ended`: what a user at a terminal learns of work of a week ago."""

from pathlib import Path

import pytest

from tests.api.past_week import served_week
from tests.cli.conftest import Type


def test_a_week_later_everything_about_evicted_work_is_found_at_the_terminal(
    kaiwo: Type, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    with served_week(home):
        told = kaiwo("history", "train")
        assert told.code == 0
        whats = [line for line in told.lines() if " UTC " in line]
        for line, words in zip(
            whats,
            (
                "submitted to queue default by ada, asking for 8 GPUs",
                "attempt 1 started on node-0 with 8 devices",
                "for default/urgent of bob, queue default",
                "30 min  waited: it needs 8 GPUs free on one node",
                "attempt 2 started",
                "for default/rush of carol, queue default",
                "30 min  waited: it needs 8 GPUs free on one node",
                "attempt 3 started",
                "attempt 3 ended after 10 min: pod main-0 ended with exit code 3",
                "failed: pod main-0 ended with exit code 3",
            ),
            strict=True,
        ):
            assert words in line
        assert "gpu-0 to gpu-7" in told.out
        use = kaiwo("seff", "train")
        facts = dict(line.split(":", 1) for line in use.lines())
        assert facts["used"].strip().endswith("GPU-hours (60 %)")
        assert facts["waited"].strip() == "1 h"
        assert 9.5 < float(facts["used"].split()[0]) < 9.7
        assert 6.3 < float(facts["wasted"].split()[0]) < 6.5
        assert facts["measured"].strip() == "92 % of what it held"
        assert kaiwo("seff", "train", "-o", "json").json["efficiency"]["used_percent"] == 60
        for attempt in ("1", "2", "3"):
            assert f"attempt {attempt}" in kaiwo("logs", "train", "--attempt", attempt).out
        listed = kaiwo("history", "--since", "8d", "-u", "ada")
        (row,) = [line.split() for line in listed.lines() if line.startswith("train")]
        assert row == ["train", "default", "ada", "8", "failed", "7", "d", "ago", "3", "2", row[10], "60", "%"]
        assert "nothing ended in the last 7d" in kaiwo("history").err
        assert "train" in kaiwo("get", "workloads", "--ended", "--since", "8d", "-o", "name").out
        assert kaiwo("get", "workloads", "--ended", "--since", "7d", "-o", "name").out == ""
        assert kaiwo("get", "nodes", "--ended").code == 2
        lines = kaiwo("report", "--by", "user", "-o", "csv").lines()
        assert lines[0] == "user,asked_gpu_hours,used_gpu_hours,wasted_gpu_hours,unmeasured_gpu_hours"
        (ada,) = [line.split(",") for line in lines if line.startswith("ada,")]
        assert 9.5 < float(ada[2]) < 9.7
        table = kaiwo("report", "--by", "month,queue").lines()
        assert table[0].split() == ["MONTH", "QUEUE", "ASKED", "USED", "WASTED", "UNMEASURED", "EFFICIENCY"]
        assert kaiwo("report", "--by", "month", "-o", "json").json["rows"][0]["queue"] == ""
        assert "--by has no 'team'" in kaiwo("report", "--by", "team").err
        assert "not known whether GPUs are idle: no agent measures" in kaiwo("idle").err
        assert "there is no workload 'default/gone'" in kaiwo("seff", "gone").err
