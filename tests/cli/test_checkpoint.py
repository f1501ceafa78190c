"""`kaiwo checkpoint`: by name, or inside a job without one."""

import pytest

from tests.cli.conftest import Type
from tests.cli.stub_server import NOW, Stub, detail, workload


def test_a_name_and_perhaps_a_moment(stub: Stub, kaiwo: Type) -> None:
    stub.workloads["default/train"] = workload("default/train")
    assert kaiwo("checkpoint", "train") == (0, "workload default/train checkpoint\n", "")
    assert stub.last_form() == {}
    assert kaiwo("checkpoint", "train", "--at", "2026-01-31T18:00:00Z").code == 0
    assert stub.last_form() == {"at": "2026-01-31T18:00:00Z"}


def test_a_job_knows_its_own_name(stub: Stub, kaiwo: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.workloads["team/train"] = workload("team/train")
    monkeypatch.setenv("KAIWO_WORKLOAD", "team/train")
    assert kaiwo("checkpoint").out == "workload team/train checkpoint\n"


def test_outside_a_job_the_name_is_needed(stub: Stub, kaiwo: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAIWO_WORKLOAD", raising=False)
    done = kaiwo("checkpoint")
    assert (done.code, done.out) == (2, "")
    assert done.err == "kaiwo: name the workload that saved its progress; the name can be left out only inside a job\n"
    assert kaiwo("checkpoint", "train", "--at", "").code == 2


def test_describe_shows_what_work_says_of_being_stopped(stub: Stub, kaiwo: Type) -> None:
    view = stub.workloads["default/train"] = workload("default/train")
    stub.details["default/train"] = detail(view, preemption_delay_s=600, restart_s=300, checkpoint_s=NOW - 120)
    said = kaiwo("describe", "train").out
    assert "waits 10 min before it may preempt others" in said
    assert "2 min ago" in said
    assert "5 min" in said
    stub.details["default/train"] = detail(view)
    assert not {"patience", "last", "restart"} & {
        line.split()[0] for line in kaiwo("describe", "train").lines() if line
    }
