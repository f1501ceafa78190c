"""`kaiwo audit` at a terminal, against a real `kaiwo up`."""

import json
from collections.abc import Iterator

import pytest

from kaiwo.api.security.process_identity import process_owner
from kaiwo.history.audit.audit_files import segment_path
from tests.cli.test_end_to_end import QUEUES, Product

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kaiwo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    product = Product(tmp_path_factory.mktemp("home"))
    yield product
    if product.up.poll() is None:
        product.stop()


def test_what_people_did_is_listed_filtered_and_verified(kaiwo: Product) -> None:
    kaiwo("apply", "-f", "-", "--reason", "the lab grows", given=QUEUES)
    kaiwo("nodes", "drain", "node-1", "--reason", "new fan")
    kaiwo("submit", "train", "--gpus", "1", "--hold", "--", "true")
    kaiwo("cancel", "train", "--reason", "wrong data")
    kaiwo("partitions", "--policy", "off", "--reason", "weekend")
    kaiwo("reservations", "create", "night", "--gpus", "1", "--reason", "release")
    kaiwo("reservations", "delete", "night", "--reason", "released")
    said = kaiwo("audit").out
    for words in ("the lab grows", "new fan", "wrong data", "weekend", "release", "released"):
        assert words in said
    (drain,) = [json.loads(line) for line in kaiwo("audit", "--object", "node/node-1", "--json").lines()]
    assert (drain["person"], drain["action"], drain["outcome"]) == (process_owner(), "drain", "done")
    assert json.loads(drain["old"]) == {"cordoned": False}
    assert kaiwo("audit", "--person", "nobody").out == ""
    assert process_owner() in kaiwo("audit", "--action", "start-kaiwo").out
    assert "new fan" in kaiwo("audit", "--action", "drain", "--since", "1h", "-o", "wide").out
    assert kaiwo("audit", "--since", "soon").code == 2
    count, head = kaiwo("audit", "head").out.split()
    good = kaiwo("audit", "verify", "--head", head)
    assert good.code == 0
    assert int(count) <= int(good.lines()[0].split()[-1])


def test_tampering_is_named_by_file_and_line(kaiwo: Product) -> None:
    kaiwo("nodes", "cordon", "node-2", "--reason", "noise")
    path = segment_path(kaiwo.home / "audit", 1)
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines, 1) if b"noise" in line)
    path.write_bytes(path.read_bytes().replace(b"noise", b"quiet"))
    found = kaiwo("audit", "verify")
    assert found.code == 1
    assert f"00000001.jsonl, line {at}: record {at} was changed" in found.out
    assert kaiwo("audit", "verify", "--head", "0" * 64).code == 1
