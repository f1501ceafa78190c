"""A set of queues is checked as a whole: every finding names the object, the fact and the way out."""

import pytest

from kaiwo.model.queue import GpuModelAmounts, Queue, QueueAmounts
from kaiwo.model.queue_validation import QueueFinding, check_queue_tree


def found(*queues: Queue) -> list[QueueFinding]:
    return list(check_queue_tree(queues))


def gpus(quota: int, limit: int = -1) -> QueueAmounts:
    return QueueAmounts(quota * 1000, limit * 1000 if limit >= 0 else -1)


def test_a_sound_tree_needs_no_word() -> None:
    assert found(
        Queue("default"),
        Queue("lab", gpu=gpus(48, 64)),
        Queue("vision", "lab", gpu=gpus(32, 48)),
        Queue("speech", "lab", gpu=QueueAmounts(15_500), gpu_models={"MI300X": GpuModelAmounts(8_000, 16_000)}),
    ) == []  # fmt: skip


@pytest.mark.parametrize(
    ("queues", "field", "sentence"),
    [
        (
            [Queue("a", "b"), Queue("b", "c"), Queue("c", "a")],
            "parentQueue",
            "queue a is its own ancestor (a > b > c > a); clear parentQueue on one of them",
        ),
        (
            [Queue("a", "b")],
            "parentQueue",
            "queue a names the parent b, which does not exist; create it or clear parentQueue",
        ),
        (
            [Queue("default"), Queue("a", "default")],
            "parentQueue",
            "queue a names the parent default, which takes work; choose another one",
        ),
        ([Queue("a"), Queue("a")], "name", "queue a is defined 2 times; keep one of them"),
        (
            [Queue("a", memory=QueueAmounts(2048, 1536))],
            "resources.memory.limit",
            "queue a has a memory limit of 1.5 GiB, below its quota of 2 GiB; raise the limit or lower the quota",
        ),
        (
            [Queue("a", gpu=gpus(8), gpu_models={"MI300X": GpuModelAmounts(4000, 2000)})],
            "resources.gpu.models.MI300X.limit",
            "queue a has a limit of 2 MI300X, below its quota of 4; raise the limit or lower the quota",
        ),
        (
            [Queue("a", gpu=gpus(2, 2), gpu_models={"MI300X": GpuModelAmounts(4000)})],
            "resources.gpu.models.MI300X.quota",
            "queue a has a quota of 4 MI300X, above its GPU limit of 2; lower the one or raise the other",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_no_meaning_is_an_error(queues: list[Queue], field: str, sentence: str) -> None:
    first = found(*queues)[0]
    assert (first.is_error, first.field, first.sentence) == (True, field, sentence)


@pytest.mark.parametrize(
    ("queues", "who", "field", "parts"),
    [
        (
            [Queue("lab", gpu=gpus(40)), Queue("a", "lab", gpu=gpus(30)), Queue("b", "lab", gpu=gpus(15))],
            "lab",
            "resources.gpu.quota",
            ["a GPU quota of 40", "below it 45 together", "raise its quota or lower theirs"],
        ),
        (
            [Queue("lab", cpu=QueueAmounts(limit=500)), Queue("a", "lab", cpu=QueueAmounts(1000))],
            "a",
            "resources.cpu.quota",
            ["a CPU quota of 1", "the limit of 0.5 of lab", "lower the quota or raise that limit"],
        ),
        (
            [Queue("a", gpu=gpus(4), gpu_models={"MI210": GpuModelAmounts(3000), "MI300X": GpuModelAmounts(2000)})],
            "a",
            "resources.gpu.models",
            ["of 5 together", "a GPU quota of 4", "raise the GPU quota"],
        ),
    ],
    ids=("children", "limit above", "models"),
)
def test_a_promise_that_cannot_be_kept_is_a_warning(
    queues: list[Queue], who: str, field: str, parts: list[str]
) -> None:
    (finding,) = [each for each in found(*queues) if each.queue == who]
    assert (finding.is_error, finding.field) == (False, field)
    for part in parts:
        assert part in finding.sentence


def test_a_queue_that_leads_into_a_circle_is_not_blamed_for_it() -> None:
    errors = found(Queue("x", "a"), Queue("a", "b"), Queue("b", "a"))
    assert [each.queue for each in errors] == ["a", "b"]


def test_errors_come_first() -> None:
    kinds = [each.is_error for each in found(Queue("a", gpu=gpus(1)), Queue("b", "a", gpu=gpus(2)), Queue("c", "x"))]
    assert kinds == [True, False]


def test_quotas_of_a_gpu_model_are_compared_with_the_queue_above() -> None:
    def queue(name: str, parent: str, quota: int, limit: int = -1) -> Queue:
        bound = GpuModelAmounts(quota * 1000, limit * 1000 if limit >= 0 else -1)
        return Queue(name, parent, gpu=gpus(8), gpu_models={"MI300X": bound})

    findings = found(Queue("org", gpu=gpus(16), gpu_models={"MI300X": GpuModelAmounts(2_000, 4_000)}),
                     queue("a", "org", 8), queue("b", "org", 1))  # fmt: skip
    assert [(finding.queue, finding.field) for finding in findings] == [
        ("a", "resources.gpu.models.MI300X.quota"),
        ("org", "resources.gpu.models.MI300X.quota"),
    ]
    assert "8 MI300X, above the limit of 4 of org" in findings[0].sentence
    assert "2 MI300X, and the queues below it 9 together" in findings[1].sentence
