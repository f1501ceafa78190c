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


def test_a_selection_by_state_or_queue_leaves_the_other_tasks_of_an_array_alone(kaiwo: Product) -> None:
    kaiwo("submit", "part", "--array", "0-4%2", "-l", "chosen=yes", "--cpu", "100m", "--", "sleep", "300")
    kaiwo("wait", "part-0", "part-1", "--for", "running")
    assert kaiwo("hold", "-l", "chosen=yes").out == "array default/part: 3 tasks held\n"
    kaiwo("release", "part-3")
    assert kaiwo("cancel", "-l", "chosen=yes", "--state", "held").out == "array default/part[2,4]: 2 tasks cancelled\n"
    states = kaiwo("get", "w", "part", "--tasks", "--no-headers").out.split("\n")[:5]
    assert [line.split()[2] for line in states] == ["running", "running", "cancelled", "waiting", "cancelled"]
    assert (
        kaiwo("cancel", "-q", "default", "--state", "waiting", "--reason", "x").out
        == "workload default/part-3 cancelled\n"
    )
    assert kaiwo("cancel", "par*").out == "array default/part[0-1]: 2 tasks cancelled\n"


def test_a_range_of_tasks_means_those_that_there_are(kaiwo: Product) -> None:
    kaiwo("submit", "gap", "--array", "0-8:2", "--hold", "--", "true")
    assert kaiwo("why", "gap[1-5]").out.startswith("gap-2 is waiting: it is held")
    assert [line.split()[0] for line in kaiwo("get", "w", "gap[1-5]", "-o", "name").out.splitlines()] == [
        "default/gap-2",
        "default/gap-4",
    ]
    assert "tasks:       2\nstates:      2 held" in kaiwo("describe", "gap[1-5]").out
    late = kaiwo("wait", "gap[0-3]", "--timeout", "1s")
    assert (late.code, "gap-0 is held, gap-2 is held" in late.err) == (1, True)
    wrong = kaiwo("why", "gap[1,3]")
    assert (wrong.code, "array gap has no task gap[1,3]" in wrong.err) == (1, True)
    assert "there is no array gpa" in kaiwo("wait", "gpa[0-3]").err
    assert kaiwo("cancel", "gap").code == 0


def test_a_mistyped_name_is_answered_with_the_one_that_is_meant(kaiwo: Product) -> None:
    held(kaiwo, "crew/chat-server", "trainer")
    kaiwo("submit", "sweeping", "--array", "0-1", "--hold", "--", "true")
    for verb in ("why", "cancel", "hold", "describe", "history"):
        for asked, meant in (
            ("triner", "trainer"), ("chat-serve", "crew/chat-server"), ("crew/chat-serve", "crew/chat-server"),
            ("swepeing", "sweeping"),
        ):  # fmt: skip
            wrong = kaiwo(verb, asked)
            assert (wrong.code, f"did you mean '{meant}'?" in wrong.err) == (1, True), (verb, asked, wrong.err)
    assert "did you mean 'trainer'?" in kaiwo("set", "triner", "priority=3").err
    assert kaiwo("get", "w", "-n", "crew", "-o", "name").out == "crew/chat-server\n"
    assert kaiwo("get", "nodes", "-n", "crew").code == 2
    assert kaiwo("cancel", "trainer", "crew/chat-server", "sweeping").code == 0


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
    assert kaiwo("set", "change", "gpus=2", "model=MI300X").out == (
        "workload default/change: size 0.5 GPU -> 2 GPUs, model any -> MI300X\n"
    )
    assert kaiwo("set", "change", "model=").out == "workload default/change: model MI300X -> any\n"
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
    kaiwo("submit", "folded", "--array", "0-2", "--hold", "--", "true")
    array = kaiwo("get", "w", "folded", "-o", "yaml").out
    assert (array.count("kind:"), kaiwo("get", "w", "folded[0-2]", "-o", "yaml").out) == (3, array)
    assert kaiwo("apply", "-f", "-", given=array).out == "array default/folded unchanged with 3 tasks\n"
    kaiwo("cancel", "folded")
    file.write_text(text.replace("Again", "Once more"))
    assert "queue again changed" in kaiwo("apply", "-f", str(file)).out
    assert "was defined by nobody" in kaiwo("get", "queue", "default", "-o", "yaml").err
