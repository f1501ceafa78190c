"""Views of reservations, with a sentence about their state."""

from collections.abc import Sequence

from kaiwo.api.views.reservations import DeviceView, ReservationView
from kaiwo.model.reservation import ReservationPhase
from kaiwo.snapshot.reservation_status import ReservationStatus

MAX_NAMED = 3


def reservation_view(status: ReservationStatus) -> ReservationView:
    reservation = status.reservation
    kind, owner = reservation.owner.kind_and_name
    return ReservationView(
        name=reservation.name,
        phase=status.phase,
        owner_kind=kind,
        owner=owner,
        gpus=len(status.devices),
        missing=status.missing,
        gpu_milli=status.total_milli,
        used_milli=status.used_milli,
        start_s=reservation.start_s,
        end_s=reservation.end_s,
        at_end=reservation.at_end,
        created_s=reservation.created_s,
        is_exact=not reservation.gpus,
        gpu_models=list(reservation.gpu_models),
        node_selector=dict(reservation.node_selector),
        nodes=list(reservation.nodes),
        devices=[DeviceView(device.node, device.gpu) for device in status.devices],
        others=list(status.others),
        message=message(status),
    )


def message(status: ReservationStatus) -> str:
    asked = status.reservation.gpus
    parts = []
    if status.missing and asked:
        parts.append(f"{status.missing} of {asked} GPUs are not available yet; they are picked when they are")
    elif status.missing:
        parts.append(f"{status.missing} of the GPUs that it names do not exist")
    if status.others:
        parts.append(f"{_some(status.others)} still there")
    if status.phase is ReservationPhase.PENDING and not parts:
        parts.append("others may use the GPUs until it starts, if they can be preempted")
    return "; ".join(parts)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more} {'is' if len(names) == 1 else 'are'}"
