"""Every setting in the table of workload fields reaches all places that the table feeds."""

import click
import msgspec
import pytest

from kaiwo.api.views import WorkloadDetail
from kaiwo.cli.verbs.workloads.run import run
from kaiwo.cli.verbs.workloads.submit import submit
from kaiwo.clusters.kubernetes.decode.workload_annotations import read_workload_settings
from kaiwo.manifests import SUBMISSION_FORM, parse
from kaiwo.model.workload import Workload
from kaiwo.model.workload_fields import FIELDS, ValueKind, WorkloadField

EXAMPLES = {
    ValueKind.BOOLEAN: (False, "false", False),
    ValueKind.DURATION: ("2h30m", "2h30m", 9000),
    ValueKind.TIMESTAMP: ("1970-01-02T00:00:00Z", "1970-01-02T00:00:00Z", 86_400),
    ValueKind.NAME: ("lab", "lab", "lab"),
}
every_field = pytest.mark.parametrize("field", FIELDS, ids=[field.name for field in FIELDS])


@every_field
def test_it_has_the_default_and_the_type_that_a_workload_has(field: WorkloadField) -> None:
    attributes = {each.name: each for each in msgspec.structs.fields(Workload)}
    assert attributes[field.name].default == field.default
    assert isinstance(field.default, attributes[field.name].type)


@every_field
def test_the_short_form_takes_it(field: WorkloadField) -> None:
    written, _, value = EXAMPLES[field.kind]
    ((workload, _),) = parse({"name": "train", field.short: written}).submissions
    assert getattr(workload, field.name) == value
    assert field.help in str(msgspec.json.schema(SUBMISSION_FORM)["$defs"]["Submission"]["properties"][field.short])


@every_field
def test_an_annotation_on_a_kubernetes_object_sets_it(field: WorkloadField) -> None:
    _, written, value = EXAMPLES[field.kind]
    assert (
        getattr(read_workload_settings("Pod 'a'", [({field.annotation: written}, {})], 0, False), field.name) == value
    )


@every_field
def test_both_verbs_that_submit_work_have_its_flag(field: WorkloadField) -> None:
    for verb in (submit, run):
        options = {name: each.help for each in verb.params if isinstance(each, click.Option) for name in each.opts}
        assert not field.flag or options[field.flag] == field.help


@every_field
def test_the_api_shows_it(field: WorkloadField) -> None:
    shown = {each.name: each for each in msgspec.structs.fields(WorkloadDetail)}
    assert isinstance(field.default, shown[field.name].type)
