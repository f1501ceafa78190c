"""Every setting in the table of workload fields reaches all places that the table feeds."""

import re

import click
import msgspec
import pytest

from kaiwo.api.views.workloads import WorkloadDetail
from kaiwo.cli.verbs.workloads.run import run
from kaiwo.cli.verbs.workloads.submit import submit
from kaiwo.clusters.kubernetes.decode.workload_annotations import read_workload_settings
from kaiwo.manifests import SUBMISSION_FORM, parse
from kaiwo.model.errors import ConfigError
from kaiwo.model.workload import Workload
from kaiwo.model.workload_fields import FIELDS, ValueKind, WorkloadField

EXAMPLES = {
    ValueKind.BOOLEAN: (False, "false", False),
    ValueKind.DURATION: ("2h30m", "2h30m", 9000),
    ValueKind.TIMESTAMP: ("1970-01-02T00:00:00Z", "1970-01-02T00:00:00Z", 86_400),
    ValueKind.NAME: ("lab", "lab", "lab"),
    ValueKind.COUNT: (8, "8", 8),
    ValueKind.LEVEL: ("net.example/leaf", "net.example/leaf", "net.example/leaf"),
    ValueKind.BANDWIDTH: ("200Gbps", "25GB/s", 25_000),
    ValueKind.STRATEGY: ("balanced", "balanced", "balanced"),
    ValueKind.NODE_STRATEGY: ("worst-fit", "worst-fit", "worst-fit"),
}
# Settings that mean nothing without another one.
BESIDE = {"topology": "required_level", "segment_size": "segment_level", "segment_level": "segment_size"}
BY_NAME = {field.name: field for field in FIELDS}
every_field = pytest.mark.parametrize("field", FIELDS, ids=[field.name for field in FIELDS])


@every_field
def test_it_has_the_default_and_the_type_that_a_workload_has(field: WorkloadField) -> None:
    attributes = {each.name: each for each in msgspec.structs.fields(Workload)}
    assert attributes[field.name].default == field.default
    assert isinstance(field.default, attributes[field.name].type)


@every_field
def test_the_short_form_takes_it(field: WorkloadField) -> None:
    written, _, value = EXAMPLES[field.kind]
    beside = {each.short: EXAMPLES[each.kind][0] for each in _beside(field)}
    ((workload, _),) = parse({"name": "train", field.short: written, **beside}).submissions
    assert getattr(workload, field.name) == value
    assert field.help in str(msgspec.json.schema(SUBMISSION_FORM)["$defs"]["Submission"]["properties"][field.short])


@every_field
def test_an_annotation_on_a_kubernetes_object_sets_it(field: WorkloadField) -> None:
    _, written, value = EXAMPLES[field.kind]
    annotations = {field.annotation: written} | {each.annotation: EXAMPLES[each.kind][1] for each in _beside(field)}
    assert getattr(read_workload_settings("Pod 'a'", [(annotations, {})], 0, False), field.name) == value


def _beside(field: WorkloadField) -> list[WorkloadField]:
    return [BY_NAME[BESIDE[field.name]]] if field.name in BESIDE else []


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"segmentSize": 4}, "segmentSize is set without segmentLevel; give both, or neither"),
        ({"segmentLevel": "leaf"}, "segmentLevel is set without segmentSize; give both, or neither"),
        ({"topology": "fabric"}, "topology is set without a level; add requiredLevel or preferredLevel"),
        ({"segmentSize": 0, "segmentLevel": "leaf"}, "segmentSize is 0; write a whole number from 1 to 1,000,000"),
        ({"placementStrategy": "near"}, "choose from: consolidated, distributed, balanced, stated"),
        ({"requiredLevel": "a b"}, "has the key"),
    ],
)
def test_levels_that_make_no_sense_are_refused_with_a_way_out(written: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        parse({"name": "train", **written})


@every_field
def test_both_verbs_that_submit_work_have_its_flag(field: WorkloadField) -> None:
    for verb in (submit, run):
        options = {name: each.help for each in verb.params if isinstance(each, click.Option) for name in each.opts}
        assert not field.flag or options[field.flag] == field.help


@every_field
def test_the_api_shows_it(field: WorkloadField) -> None:
    shown = {each.name: each for each in msgspec.structs.fields(WorkloadDetail)}
    assert isinstance(field.default, shown[field.name].type)
