"""Views of reservations, with a sentence about their state."""

from collections.abc import Sequence

from kaiwo.api.views import DeviceView, ReservationView
from kaiwo.model.reservation import ReservationPhase
from kaiwo.snapshot.reservation_status import ReservationStatus

MOST_NAMED = 3


def reservation_view(standing: ReservationStatus) -> ReservationView:
    reservation = standing.reservation
    kind, owner = reservation.owner.kind_and_name
    return ReservationView(
        name=reservation.name,
        phase=standing.phase,
        owner_kind=kind,
        owner=owner,
        gpus=len(standing.devices),
        missing=standing.missing,
        gpu_milli=standing.total_milli,
        used_milli=standing.used_milli,
        start_s=reservation.start_s,
        end_s=reservation.end_s,
        at_end=reservation.at_end,
        created_s=reservation.created_s,
        is_exact=not reservation.gpus,
        gpu_models=list(reservation.gpu_models),
        node_selector=dict(reservation.node_selector),
        nodes=list(reservation.nodes),
        devices=[DeviceView(device.node, device.gpu) for device in standing.devices],
        others=list(standing.others),
        message=message(standing),
    )


def message(standing: ReservationStatus) -> str:
    asked = standing.reservation.gpus
    parts = []
    if standing.missing and asked:
        parts.append(f"{standing.missing} of {asked} GPUs are not available yet; they are picked when they are")
    elif standing.missing:
        parts.append(f"{standing.missing} of the GPUs that it names do not exist")
    if standing.others:
        parts.append(f"{_some(standing.others)} still there")
    if standing.phase is ReservationPhase.PENDING and not parts:
        parts.append("others may use the GPUs until it starts, if they can be preempted")
    return "; ".join(parts)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more} {'is' if len(names) == 1 else 'are'}"
