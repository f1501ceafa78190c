"""Read a KaiwoReservation, and the form with which one is made.

In:    a document of that kind, or a mapping with the same fields and a name.   Out: one Reservation.
A file names moments, so that applying it twice says the same twice; a form may also count from now.
"""

from collections.abc import Mapping
from typing import Any

from kaiwo.manifests.kinds.object_metadata import Object, check_user
from kaiwo.manifests.text.field_errors import Place, quote_name
from kaiwo.manifests.text.field_reader import Fields
from kaiwo.manifests.values.gpu_model_names import read_models
from kaiwo.manifests.values.names import check_labels, read_name, read_reference
from kaiwo.manifests.values.timestamps import read_moment_or_duration_s, read_moment_s
from kaiwo.model.errors import ConfigError
from kaiwo.model.reservation import AtEnd, Device, Owner, Reservation, check_reservation

KIND = "KaiwoReservation"
MAX_RESERVED = 1_000_000
MAX_LISTED = 10_000  # nodes or devices of one reservation


def read_reservation(item: Object) -> Reservation:
    """One KaiwoReservation."""
    reservation = _read(item.name, item.spec, None)
    item.spec.finish(strict=True)
    item.read_labels()
    item.metadata.text_map("annotations")
    item.finish(strict=True)
    return _checked(reservation, "spec")


def read_reservation_form(form: Mapping[str, Any], now_s: int) -> Reservation:
    """A form: `start` may be "2h" from now, `end` "8h" after the start."""
    written = form.get("name")
    owner = f"reservation {quote_name(written)}" if isinstance(written, str) and written else "the form"
    fields = Fields(form, owner, [])
    if not fields.has("name"):
        raise fields.place("name").error("is missing; give the reservation one")
    reservation = _read(fields.read("name", read_name, ""), fields, now_s)
    fields.finish(strict=True)
    return _checked(reservation, "gpus")


def _read(name: str, spec: Fields, now_s: int | None) -> Reservation:
    start_s = spec.read("start", lambda value, place: _moment(value, place, now_s), 0)
    base_s = None if now_s is None else start_s or now_s
    return Reservation(
        name=name,
        gpus=spec.integer("gpus", 0, 1, MAX_RESERVED),
        gpu_models=read_models(spec.texts("gpuModels"), spec.place("gpuModels"), "", spec.warnings),
        node_selector=_selector(spec),
        nodes=tuple(dict.fromkeys(_listed(spec, "nodes", spec.texts("nodes")))),
        devices=tuple(dict.fromkeys(_device(item) for item in _listed(spec, "devices", spec.items("devices")))),
        owner=_owner(spec.inner("owner"), spec.has("owner")),
        start_s=start_s,
        end_s=spec.read("end", lambda value, place: _moment(value, place, base_s), 0),
        at_end=AtEnd(spec.choice("atEnd", tuple(AtEnd), AtEnd.KEEP)),
    )


def _checked(reservation: Reservation, field: str) -> Reservation:
    if sentence := check_reservation(reservation):
        raise ConfigError(sentence, field)
    return reservation


def _moment(value: object, place: Place, base_s: int | None) -> int:
    return read_moment_s(value, place) if base_s is None else read_moment_or_duration_s(value, place, base_s)


def _owner(fields: Fields, is_there: bool) -> Owner:
    user = check_user(fields.text("user"), fields.place("user"))
    found = Owner(
        queue=fields.read("queue", read_name, ""),
        user=user,
        workload=fields.read("workload", lambda value, place: read_reference(value, place, "default"), ""),
    )
    fields.finish(strict=True)
    if is_there and found.is_pool:
        raise fields.place("queue").error(
            "is missing; name exactly one of queue, user and workload, or leave owner out"
        )
    return found


def _selector(spec: Fields) -> tuple[tuple[str, str], ...]:
    labels = check_labels(spec.text_map("nodeSelector"), spec.place("nodeSelector"))
    return tuple(sorted(labels.items()))


def _device(item: Fields) -> Device:
    for name in ("node", "gpu"):
        if not item.text(name):
            raise item.place(name).error("is missing; write both, such as {node: node-1, gpu: gpu-0}")
    device = Device(item.text("node"), item.text("gpu"))
    item.finish(strict=True)
    return device


def _listed(spec: Fields, name: str, items: Any) -> Any:
    if len(items) > MAX_LISTED:
        raise spec.place(name).error(f"has {len(items)} entries and the most is {MAX_LISTED:,}; split the reservation")
    return items
