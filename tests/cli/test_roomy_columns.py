"""Where the terminal has room, lists of workloads show who submitted each one and how long it ran."""

from kaiwo.cli.lists.object_kinds import WORKLOADS
from kaiwo.cli.lists.show_list import ListRequest, list_lines
from tests.cli.stub_server import NOW, workload


def titles(width: int, output: str = "table") -> list[str]:
    views = [workload("default/train", "running")]
    return list_lines(WORKLOADS, ListRequest(output=output), views, NOW, width)[0].split()


def test_a_wide_terminal_shows_user_and_run_time() -> None:
    assert {"USER", "RAN"} <= set(titles(200))
    assert "PRIORITY" not in titles(200)


def test_a_narrow_terminal_and_a_pipe_do_not() -> None:
    for width in (60, 0):
        assert not {"USER", "RAN"} & set(titles(width))


def test_wide_output_shows_everything() -> None:
    assert {"USER", "RAN", "PRIORITY", "LABELS"} <= set(titles(0, "wide"))
