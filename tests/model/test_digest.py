"""Equal values have equal digests, wherever they were made."""

import msgspec

from kaiwo.model.affinity import NodeRule
from kaiwo.model.digest import digest
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request


def test_equal_numbers_and_strings_need_not_be_the_same_object() -> None:
    assert digest(Request(gpus=1)) == digest(Request(gpus=1, gpu_milli=int("1000")))
    assert digest(Policy()) == digest(Policy(gpu_strategy="-".join(["fragmentation", "aware"])))


def test_a_value_that_went_over_the_wire_keeps_its_name() -> None:
    want = Request(5, 7, 2, node_rules=(NodeRule("zone", values=("a",)),))
    assert digest(msgspec.msgpack.decode(msgspec.msgpack.encode(want), type=Request)) == digest(want)


def test_different_values_have_different_names() -> None:
    assert len({digest(Request(gpus=gpus, cpu_milli=cpu)) for gpus in range(10) for cpu in range(10)}) == 100
    assert digest(("a", "bc")) != digest(("ab", "c"))
