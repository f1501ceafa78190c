"""Read a KaiwoReservation, or the form that creates a reservation.

In:    a document of that kind, or a mapping with the same fields and a name.   Out: one Reservation.
Times in a file are absolute, so that applying it again changes nothing; a form may also count from now.
"""

from collections.abc import Mapping
from typing import Any

from kaiwo.manifests.kinds.object_metadata import ManifestObject, check_user
from kaiwo.manifests.text.field_errors import FieldPath, quote_name
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.gpu_model_names import read_models
from kaiwo.manifests.values.names import check_labels, read_name, read_reference
from kaiwo.manifests.values.timestamps import read_timestamp_or_duration_s, read_timestamp_s
from kaiwo.model.errors import ConfigError
from kaiwo.model.reservation import AtEnd, PhysicalDevice, Reservation, ReservationOwner, check_reservation

KIND = "KaiwoReservation"
MAX_RESERVED = 1_000_000
MAX_LISTED = 10_000  # nodes or devices of one reservation


def read_reservation(item: ManifestObject) -> Reservation:
    reservation = _read(item.name, item.spec, None)
    item.spec.finish(strict=True)
    item.read_labels()
    item.metadata.text_map("annotations")
    item.finish(strict=True)
    return _checked(reservation, "spec")


def read_reservation_form(form: Mapping[str, Any], now_s: int) -> Reservation:
    """`start` may be "2h", which is from now, and `end` "8h", which is after the start."""
    written = form.get("name")
    owner = f"reservation {quote_name(written)}" if isinstance(written, str) and written else "the form"
    fields = FieldReader(form, owner, [])
    if not fields.has("name"):
        raise fields.path_of("name").error("is missing; give the reservation one")
    reservation = _read(fields.read("name", read_name, ""), fields, now_s)
    fields.finish(strict=True)
    return _checked(reservation, "gpus")


def _read(name: str, spec: FieldReader, now_s: int | None) -> Reservation:
    start_s = spec.read("start", lambda value, path: _moment(value, path, now_s), 0)
    base_s = None if now_s is None else start_s or now_s
    return Reservation(
        name=name,
        gpus=spec.integer("gpus", 0, 1, MAX_RESERVED),
        gpu_models=read_models(spec.texts("gpuModels"), spec.path_of("gpuModels"), "", spec.warnings),
        node_selector=tuple(sorted(check_labels(spec.text_map("nodeSelector"), spec.path_of("nodeSelector")).items())),
        nodes=tuple(dict.fromkeys(_listed(spec, "nodes", spec.texts("nodes")))),
        devices=tuple(dict.fromkeys(_device(item) for item in _listed(spec, "devices", spec.items("devices")))),
        owner=_owner(spec.inner("owner"), spec.has("owner")),
        start_s=start_s,
        end_s=spec.read("end", lambda value, path: _moment(value, path, base_s), 0),
        at_end=AtEnd(spec.choice("atEnd", tuple(AtEnd), AtEnd.KEEP)),
    )


def _checked(reservation: Reservation, field: str) -> Reservation:
    if sentence := check_reservation(reservation):
        raise ConfigError(sentence, field)
    return reservation


def _moment(value: object, path: FieldPath, base_s: int | None) -> int:
    return read_timestamp_s(value, path) if base_s is None else read_timestamp_or_duration_s(value, path, base_s)


def _owner(fields: FieldReader, is_given: bool) -> ReservationOwner:
    found = ReservationOwner(
        queue=fields.read("queue", read_name, ""),
        user=check_user(fields.text("user"), fields.path_of("user")),
        workload=fields.read("workload", lambda value, path: read_reference(value, path, "default"), ""),
    )
    fields.finish(strict=True)
    if is_given and found.is_pool:
        way_out = "name exactly one of queue, user and workload, or leave owner out"
        raise fields.path_of("queue").error(f"is missing; {way_out}")
    return found


def _device(item: FieldReader) -> PhysicalDevice:
    for name in ("node", "gpu"):
        if not item.text(name):
            raise item.path_of(name).error("is missing; write both, such as {node: node-1, gpu: gpu-0}")
    device = PhysicalDevice(item.text("node"), item.text("gpu"))
    item.finish(strict=True)
    return device


def _listed(spec: FieldReader, name: str, items: Any) -> Any:
    if len(items) > MAX_LISTED:
        fact = f"has {len(items)} entries and the maximum is {MAX_LISTED:,}"
        raise spec.path_of(name).error(f"{fact}; split the reservation")
    return items
