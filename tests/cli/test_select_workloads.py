"""Several workloads at once, as people know it: patterns, users, namespaces, several logs, changes in place."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_end_to_end import Product

pytestmark = pytest.mark.slow
LINES = "for i in 1 2 3; do echo line $i of $KAIWO_POD; sleep 0.2; done; printf last"


@pytest.fixture(scope="module")
def kaiwo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    product = Product(tmp_path_factory.mktemp("home"))
    yield product
    product("cancel", "-q", "default")
    product.stop()


def held(kaiwo: Product, *names: str) -> None:
    for name in names:
        assert kaiwo("submit", name, "--hold", "--", "true").code == 0


def test_patterns_stand_for_names_in_one_namespace(kaiwo: Product) -> None:
    held(kaiwo, "p1", "p2", "p22", "team/p3")
    done = kaiwo("cancel", "p?")
    assert done.out.splitlines() == ["workload default/p1 cancelled", "workload default/p2 cancelled"]
    assert kaiwo("cancel", "team/p*").out.splitlines() == ["workload team/p3 cancelled"]
    assert kaiwo("cancel", "p*").out.splitlines() == ["workload default/p22 cancelled"]
    none = kaiwo("cancel", "p*")
    assert (none.code, "no workload matches default/p*" in none.err) == (1, True)


def test_brackets_in_a_pattern_are_plain_text(kaiwo: Product) -> None:
    held(kaiwo, "b1")
    assert "no workload matches" in kaiwo("cancel", "[b]*").err
    assert kaiwo("cancel", "b*").code == 0


def test_work_is_chosen_by_user_and_by_namespace(kaiwo: Product) -> None:
    held(kaiwo, "n/one", "n/two", "m/three")
    assert kaiwo("hold", "-n", "nowhere").err == "no workloads match; nothing changed\n"
    assert len(kaiwo("cancel", "-n", "n").out.splitlines()) == 2
    assert "workload default/" not in kaiwo("cancel", "-u", "somebody-else").out
    assert "workload m/three cancelled" in kaiwo("cancel", "-u", "me").out
    both = kaiwo("cancel", "x", "-u", "me")
    assert (both.code, "name workloads, or select them with -l, -q, -u or -n" in both.err) == (2, True)


def test_an_unknown_queue_is_an_error_with_the_nearest_name(kaiwo: Product) -> None:
    for command in (("get", "workloads"), ("cancel",)):
        wrong = kaiwo(*command, "-q", "defualt")
        assert wrong.code == 1
        assert "did you mean 'default'?" in wrong.err
    assert "did you mean default?" in kaiwo("submit", "x", "-q", "defualt", "--", "true").err


def test_logs_of_several_pods_have_their_names(kaiwo: Product) -> None:
    kaiwo("submit", "gang", "--pods", "2", "--", "sh", "-c", LINES)
    lines = kaiwo("logs", "-f", "gang").out.splitlines()
    for pod in ("main-0", "main-1"):
        own = [line for line in lines if line.startswith(f"[{pod}] ")]
        assert own == [f"[{pod}] {text}" for text in (*(f"line {i} of {pod}" for i in (1, 2, 3)), "last")]
    assert len(lines) == 8
    assert kaiwo("logs", "gang", "--tail", "1").out.splitlines() == ["[main-0] last", "[main-1] last"]
    assert kaiwo("logs", "gang", "--pod", "main-1").out.splitlines()[0] == "line 1 of main-1"


def test_logs_of_several_workloads_have_their_names(kaiwo: Product) -> None:
    kaiwo("submit", "part", "--array", "0-1", "--", "sh", "-c", "echo $KAIWO_ARRAY_INDEX")
    kaiwo("wait", "part")
    for words in (("part-*",), ("part-0", "part-1")):
        assert kaiwo("logs", *words).out.splitlines() == ["[part-0] 0", "[part-1] 1"]
    assert kaiwo("logs", "part-1").out == "1\n"
    assert "no workload matches" in kaiwo("logs", "no-*").err


def test_the_command_without_dashes_is_answered_with_the_right_line(kaiwo: Product) -> None:
    assert "like: kaiwo submit train -- python train.py" in kaiwo("submit", "train", "python", "train.py").err
    assert "like: kaiwo run -- python 'my file.py'" in kaiwo("run", "python", "my file.py").err


def test_waiting_work_is_changed_in_place(kaiwo: Product) -> None:
    held(kaiwo, "change")
    assert kaiwo("set", "change", "priority=-5", "fraction=0.5", "time=2h").out == (
        "workload default/change: size 1 CPU -> 0.5 GPU, priority 50 -> -5, time none -> 2 h\n"
    )
    assert "priority -5 -> 3" in kaiwo("set", "chan*", "priority=3").out
    assert "time 2 h -> none" in kaiwo("set", "change", "time=").out
    for words, says in (
        (("change", "time=2"), "time=2 has no unit; write 2m for minutes or 2h for hours"),
        (("change",), "say what to change"),
        (("priority=2",), "name the workloads"),
        (("change", "priorty=2"), "did you mean priority"),
        (("nosuch", "priority=2"), "nosuch does not exist"),
    ):
        wrong = kaiwo("set", *words)
        assert wrong.code != 0
        assert says in wrong.err
    assert kaiwo("set", "change", "hold=false").out == "workload default/change: released\n"


def test_a_time_needs_a_unit(kaiwo: Product) -> None:
    wrong = kaiwo("submit", "x", "--time", "2", "--", "true")
    assert (wrong.code, "--time 2 has no unit; write 2m" in wrong.err) == (2, True)


def test_a_reservation_must_exist(kaiwo: Product) -> None:
    wrong = kaiwo("submit", "x", "--reservation", "nope", "--", "true")
    assert (wrong.code, "reservation nope, which does not exist; there are none" in wrong.err) == (3, True)


def test_what_get_prints_as_yaml_can_be_applied_again(kaiwo: Product, tmp_path: Path) -> None:
    queue = "apiVersion: kaiwo.ai/v1alpha2\nkind: KaiwoQueue\nmetadata: {name: again}\nspec: {displayName: Again}\n"
    assert kaiwo("apply", "-f", "-", given=queue).code == 0
    assert (
        kaiwo("submit", "again", "-q", "again", "--gpus", "2", "--time", "2h", "--hold", "--", "sleep", "5").code == 0
    )
    text = kaiwo("get", "queue", "again", "-o", "yaml").out + "---\n" + kaiwo("get", "w", "again", "-o", "yaml").out
    file = tmp_path / "again.yaml"
    file.write_text(text)
    done = kaiwo("apply", "-f", str(file))
    assert done.out.splitlines() == ["queue again unchanged", "workload default/again unchanged"]
    file.write_text(text.replace("Again", "Once more"))
    assert "queue again changed" in kaiwo("apply", "-f", str(file)).out
    assert "was defined by nobody" in kaiwo("get", "queue", "default", "-o", "yaml").err
