"""Routes that list, show, create and delete reservations."""

from kaiwo.api.context import wait_until_visible
from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, did_you_mean, not_found, quote
from kaiwo.api.http.query_params import Param
from kaiwo.api.http.request_body import Body
from kaiwo.api.presenters.reservation_view import reservation_view
from kaiwo.api.views import Outcome, Page, ReservationForm, ReservationView
from kaiwo.manifests import read_json
from kaiwo.manifests.kinds.reservation import read_reservation_form
from kaiwo.model.reservation import Reservation, ReservationPhase, is_same_reservation
from kaiwo.snapshot.reservation_status import reservation_statuses

PHASE = Param("phase", "choices", "Only in this phase; repeat it for several.", choices=tuple(ReservationPhase))
DRY_RUN = Param("dry_run", "flag", "Only say what would happen.", False)


async def list_reservations(call: EndpointCall) -> Page[ReservationView]:
    phases = call.query.get("phase") or tuple(ReservationPhase)
    now_s = call.context.live.cluster.now_s()
    found = await call.context.live.ask(lambda state: reservation_statuses(state, now_s))
    items = [reservation_view(each) for each in found if each.phase in phases]
    return Page(items, len(items))


async def get_reservation(call: EndpointCall) -> ReservationView:
    name = call.path["name"]
    items = (await list_reservations(call)).items
    if found := next((item for item in items if item.name == name), None):
        return found
    raise not_found(f"there is no reservation {quote(name)}{did_you_mean(name, [item.name for item in items][:50])}")


async def make_reservation(call: EndpointCall) -> Outcome:
    live, dry_run = call.context.live, call.query["dry_run"]
    reservation = read_reservation_form(read_json(call.body), live.cluster.now_s())
    before = {each.name: each for each in live.cluster.abilities.work.reservations()}.get(reservation.name)
    await live.cluster.abilities.work.put((), (), who=call.user, dry_run=dry_run, reservations=(reservation,))
    if not dry_run:
        await wait_until_visible(
            live, lambda: is_same_reservation(reservation, live.state.reservations.objects.get(reservation.name))
        )
    suffix = " (dry run)" if dry_run else ""
    return Outcome([put_words(reservation, before) + suffix], [], [] if dry_run else [reservation.name])


async def delete_reservation(call: EndpointCall) -> Outcome:
    live, name = call.context.live, call.path["name"]
    await live.cluster.abilities.work.remove((), (), who=call.user, reservations=(name,))
    await wait_until_visible(live, lambda: name not in live.state.reservations.objects)
    return Outcome([f"reservation {name} deleted"], [], [name])


def put_words(reservation: Reservation, before: Reservation | None) -> str:
    """`reservation night created`."""
    return f"reservation {reservation.name} {change_verb(before is None, is_same_reservation(reservation, before))}"


def change_verb(is_new: bool, is_same: bool) -> str:
    return "created" if is_new else "unchanged" if is_same else "changed"


FORM = Body((JSON,), ReservationForm)

ROUTES = (
    Route("GET", "/reservations", "List reservations.", list_reservations, Page[ReservationView], params=(PHASE,)),
    Route("GET", "/reservations/{name}", "One reservation.", get_reservation, ReservationView, errors=(404,)),
    Route(
        "POST", "/reservations", "Create or change a reservation.", make_reservation, Outcome, 201,
        params=(DRY_RUN,), body=FORM,
    ),
    Route(
        "DELETE", "/reservations/{name}", "Delete a reservation; work on its GPUs keeps running.", delete_reservation,
        Outcome, errors=(404,),
    ),
)  # fmt: skip
