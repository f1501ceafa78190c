"""Every route has a right, and every right of the table has its route."""

from kaiwo.api.application import API_ROUTES, OPENAPI
from kaiwo.api.routes import agents, health
from kaiwo.api.security.roles import RIGHTS, AccessRole, Right
from kaiwo.api.security.route_rights import RIGHT_OF_ROUTE, right_needed

ROUTES = {f"{route.method} {route.path}" for route in (*API_ROUTES, OPENAPI, *health.ROUTES, agents.REPORT_ROUTE)}


def test_every_route_is_in_the_table_and_nothing_else_is() -> None:
    assert ROUTES - RIGHT_OF_ROUTE.keys() == set(), "name the right of this route in api/security/route_rights.py"
    assert RIGHT_OF_ROUTE.keys() - ROUTES == set(), "there is no such route any more"


def test_only_probes_and_the_login_itself_are_free() -> None:
    free = {route for route, right in RIGHT_OF_ROUTE.items() if right is Right.NONE}
    assert free == {"GET /healthz", "GET /livez", "GET /readyz", "POST /sessions"}


def test_a_route_that_is_not_in_the_table_is_for_administrators() -> None:
    assert right_needed("POST", "/made-up") is Right.ADMINISTER
    assert [role for role in AccessRole if Right.ADMINISTER in RIGHTS[role]] == [AccessRole.ADMIN]


def test_a_token_for_one_purpose_has_no_other() -> None:
    assert RIGHTS[AccessRole.SCRAPER] == {Right.NONE, Right.SCRAPE}
    assert RIGHTS[AccessRole.AGENT] == {Right.NONE, Right.REPORT}
