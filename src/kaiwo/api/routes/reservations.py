"""Routes that list, show, create and delete reservations."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from kaiwo.api.context import wait_until_visible
from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, did_you_mean, not_found, quote
from kaiwo.api.http.query_params import Param
from kaiwo.api.http.request_body import Body
from kaiwo.api.presenters.reservation_view import reservation_view
from kaiwo.api.views.answers import Outcome, Page
from kaiwo.api.views.reservations import ReservationForm, ReservationView
from kaiwo.explain import reservation_effect
from kaiwo.manifests import read_json
from kaiwo.manifests.kinds.reservation import read_reservation_form
from kaiwo.manifests.write_manifest import reservation_document
from kaiwo.model.errors import RefusedError
from kaiwo.model.reservation import Reservation, ReservationPhase, is_same_reservation
from kaiwo.snapshot.reservation_status import reservation_statuses

PHASE = Param("phase", "choices", "Only in this phase; repeat it for several.", choices=tuple(ReservationPhase))
DRY_RUN = Param("dry_run", "flag", "Only say what would happen.", False)
STOP_RUNNING = Param(
    "stop_running", "flag", "Reserve even if that stops running work, or is more than the cluster has.", False
)


async def list_reservations(call: EndpointCall) -> Page[ReservationView]:
    phases = call.query.get("phase") or tuple(ReservationPhase)
    now_s = call.context.live.cluster.now_s()
    found = await call.ask(lambda state: reservation_statuses(state, now_s))
    items = [reservation_view(each) for each in found if each.phase in phases]
    return Page(items, len(items))


async def get_reservation(call: EndpointCall) -> ReservationView:
    name = call.path["name"]
    items = (await list_reservations(call)).items
    if found := next((item for item in items if item.name == name), None):
        return found
    raise not_found(f"there is no reservation {quote(name)}{did_you_mean(name, [item.name for item in items][:50])}")


async def get_reservation_manifest(call: EndpointCall) -> dict[str, Any]:
    name, known = call.path["name"], call.context.live.cluster.abilities.work.reservations()
    for reservation in known:
        if reservation.name == name:
            return reservation_document(reservation)
    raise not_found(f"there is no reservation {quote(name)}{did_you_mean(name, [each.name for each in known][:50])}")


async def make_reservation(call: EndpointCall) -> Outcome:
    live, dry_run = call.context.live, call.query["dry_run"]
    reservation = read_reservation_form(read_json(call.body), live.cluster.now_s())
    before = {each.name: each for each in live.cluster.abilities.work.reservations()}.get(reservation.name)
    await live.cluster.abilities.work.put((), (), dry_run=True, reservations=(reservation,))  # whether it can be made
    warnings = await check_effects(call, (reservation,))
    await live.cluster.abilities.work.put((), (), who=call.user, dry_run=dry_run, reservations=(reservation,))
    if not dry_run:
        call.trail.changed(f"reservation/{reservation.name}", before, reservation)
        await wait_until_visible(
            live, lambda: is_same_reservation(reservation, live.state.reservations.objects.get(reservation.name))
        )
    suffix = " (dry run)" if dry_run else ""
    return Outcome([put_words(reservation, before) + suffix], warnings, [] if dry_run else [reservation.name])


async def delete_reservation(call: EndpointCall) -> Outcome:
    live, name = call.context.live, call.path["name"]
    before = {each.name: each for each in live.cluster.abilities.work.reservations()}.get(name)
    await live.cluster.abilities.work.remove((), (), who=call.user, reservations=(name,))
    call.trail.changed(f"reservation/{name}", before)
    await wait_until_visible(live, lambda: name not in live.state.reservations.objects)
    return Outcome([f"reservation {name} deleted"], [], [name])


async def check_effects(call: EndpointCall, reservations: Sequence[Reservation]) -> list[str]:
    """What they would do to running work. Refuses those that do harm, unless the client insists or only asks."""
    live, now_s = call.context.live, call.context.live.cluster.now_s()
    known = live.state.reservations.objects
    fresh = [each for each in reservations if not is_same_reservation(each, known.get(each.name))]
    found = [
        await call.ask(partial(reservation_effect, reservation=each, policy=live.policy, now_s=now_s)) for each in fresh
    ]
    harmful = [each.sentence for each in found if not each.is_harmless]
    if harmful and not (call.query["dry_run"] or call.query.get(STOP_RUNNING.name)):
        raise RefusedError(
            f"{'; '.join(harmful)}; if you mean it, add {STOP_RUNNING.name}=true (kaiwo: --yes)", STOP_RUNNING.name
        )
    return harmful


def put_words(reservation: Reservation, before: Reservation | None) -> str:
    """`reservation night created`."""
    return f"reservation {reservation.name} {change_verb(before is None, is_same_reservation(reservation, before))}"


def change_verb(is_new: bool, is_same: bool) -> str:
    return "created" if is_new else "unchanged" if is_same else "changed"


FORM = Body((JSON,), ReservationForm)

ROUTES = (
    Route("GET", "/reservations", "List reservations.", list_reservations, Page[ReservationView], params=(PHASE,)),
    Route("GET", "/reservations/{name}", "One reservation.", get_reservation, ReservationView, errors=(404,)),
    Route("GET", "/reservations/{name}/manifest", "Its manifest, which can be applied again.",
          get_reservation_manifest, dict[str, Any], errors=(404, 409)),
    Route(
        "POST", "/reservations", "Create or change a reservation.", make_reservation, Outcome, 201,
        params=(DRY_RUN, STOP_RUNNING), body=FORM,
    ),
    Route(
        "DELETE", "/reservations/{name}", "Delete a reservation; work on its GPUs keeps running.", delete_reservation,
        Outcome, errors=(404,),
    ),
)  # fmt: skip
