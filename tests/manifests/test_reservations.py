"""A KaiwoReservation as people write it."""

from typing import Any

import pytest

from kaiwo.manifests import ManifestDefaults, parse
from kaiwo.manifests.kinds.reservation import read_reservation_form
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.timestamps import read_timestamp_s
from kaiwo.model.errors import ConfigError
from kaiwo.model.reservation import AtEnd, PhysicalDevice, Reservation, ReservationOwner, ReservationPhase, clock_words


def read(spec: dict[str, Any], name: str = "night") -> Reservation:
    document = {
        "apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoReservation", "metadata": {"name": name}, "spec": spec,
    }  # fmt: skip
    (found,) = parse(document).reservations
    return found


def test_every_field_is_read() -> None:
    assert read(
        {
            "gpus": 8,
            "gpuModels": ["mi300x"],
            "nodeSelector": {"rack": "7"},
            "owner": {"queue": "lab"},
            "start": "2026-01-31T18:00:00Z",
            "end": "2026-02-01T06:00:00+01:00",
            "atEnd": "evict",
        }
    ) == Reservation(
        "night",
        gpus=8,
        gpu_models=("MI300X",),
        node_selector=(("rack", "7"),),
        owner=ReservationOwner(queue="lab"),
        start_s=1_769_882_400,
        end_s=1_769_922_000,
        at_end=AtEnd.EVICT,
    )
    assert read({"nodes": ["a", "b"], "owner": {"user": "ada@lab"}}).nodes == ("a", "b")
    exact = read({"devices": [{"node": "a", "gpu": "0000:c1:00.0"}], "owner": {"workload": "train"}})
    assert exact.devices == (PhysicalDevice("a", "0000:c1:00.0"),)
    assert exact.owner == ReservationOwner(workload="default/train")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "names no GPUs; give exactly one of gpus"),
        ({"gpus": 0}, "must be 1 to"),
        ({"gpus": "8"}, "must be a whole number"),
        ({"gpus": 1, "nodes": ["a"]}, "has gpus and nodes"),
        ({"nodes": ["a"], "gpuModels": ["MI300X"]}, "have no effect; leave them out"),
        ({"gpus": 1, "owner": {}}, "name exactly one of queue, user and workload"),
        ({"gpus": 1, "owner": {"queue": "a", "user": "b"}}, "several owners"),
        ({"gpus": 1, "start": "tomorrow"}, "not a time with a time zone"),
        ({"gpus": 1, "start": "2h"}, "not a time with a time zone"),
        ({"gpus": 1, "start": "2026-13-01T00:00:00Z"}, "not a date of the calendar"),
        ({"gpus": 1, "start": "2026-01-01T00:00:00"}, "with a time zone"),
        ({"gpus": 1, "start": "2026-02-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, "ends before it begins"),
        ({"gpus": 1, "atEnd": "stop"}, "write keep, evict"),
        ({"gpus": 1, "until": "x"}, "is not a known field"),
        ({"devices": [{"node": "a"}]}, "gpu is missing"),
    ],
)
def test_what_makes_no_sense_is_said(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(spec)
    assert words in str(caught.value)


def test_a_form_counts_from_now_and_from_its_start() -> None:
    found = read_reservation_form({"name": "a", "gpus": 1, "start": "1h", "end": "8h"}, 1000)
    assert (found.start_s, found.end_s) == (4600, 33_400)
    found = read_reservation_form({"name": "a", "gpus": 1, "end": "8h"}, 1000)
    assert (found.start_s, found.end_s) == (0, 29_800)


def test_work_names_a_reservation_and_its_expiry() -> None:
    form = {"name": "a", "gpus": 1, "reservation": "night", "expires": "2h"}
    ((workload, _),) = parse(form, ManifestDefaults(submitted_s=100)).submissions
    assert (workload.reservation, workload.expires_s) == ("night", 7300)
    notes = {"kaiwo.ai/reservation": "night", "kaiwo.ai/expires": "2026-01-31T18:00:00Z"}
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": notes},
        "spec": {"containers": [{"name": "main", "image": "work"}]},
    }  # fmt: skip
    ((workload, _),) = parse(pod).submissions
    assert (workload.reservation, workload.expires_s) == ("night", 1_769_882_400)


def test_phases_follow_the_clock() -> None:
    night = Reservation("night", gpus=1, start_s=100, end_s=200)
    phases = [night.phase(now_s) for now_s in (99, 100, 199, 200)]
    assert phases == [
        ReservationPhase.PENDING,
        ReservationPhase.ACTIVE,
        ReservationPhase.ACTIVE,
        ReservationPhase.EXPIRED,
    ]
    assert Reservation("now", gpus=1).phase(0) is ReservationPhase.ACTIVE


def test_moments_are_said_as_people_read_them() -> None:
    assert clock_words(1_769_882_400) == "2026-01-31 18:00 UTC"
    assert clock_words(1_769_882_401) == "2026-01-31 18:00:01 UTC"
    assert clock_words(7) == "second 7 of the cluster's clock"
    assert clock_words(253_402_300_799) == "9999-12-31 23:59:59 UTC"
    assert clock_words(253_402_387_139) == "a moment after the year 9999"


@pytest.mark.parametrize(
    "text",
    ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"],
)
def test_a_moment_before_the_clock_begins_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expires is .* which is before 1970"):
        parse({"name": "a", "expires": text})


def test_the_last_moment_of_the_calendar_is_read_in_every_time_zone() -> None:
    assert read_timestamp_s("9999-12-31T23:59:59-23:00", FieldPath("", "end")) == 253_402_300_799 + 23 * 3600
