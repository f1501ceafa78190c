"""Every write through the API is in the audit: who, what, the old and the new value, why, and how it ended."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kaiwo.api.application import API_ROUTES
from kaiwo.api.endpoint import Route
from kaiwo.api.routes import agents
from kaiwo.api.security.process_identity import process_owner
from kaiwo.api.security.roles import AccessRole, Identity
from kaiwo.api.views.audit import AuditPageView
from kaiwo.api.write_trail import action_of
from kaiwo.history.audit import AuditRecord
from kaiwo.history.audit.audit_log import AuditLog
from tests.api.world import WRONG, World, decode, world
from tests.audit_records import audit_of

run = asyncio.run
WRITES = [route for route in (*API_ROUTES, agents.REPORT_ROUTE) if route.is_write]
QUEUE = """
kind: KaiwoQueue
apiVersion: kaiwo.ai/v1alpha2
metadata: {name: lab}
spec: {resources: {gpu: {quota: %d}}}
"""


async def send(kaiwo: World, route: Route, headers: dict[str, str]) -> int:
    """A request to this route, with a body that says little."""
    path = route.path
    for name in ("namespace", "name", "node", "id"):
        path = path.replace("{" + name + "}", "default" if name == "namespace" else "thing")
    path = path if path.startswith("/api/") else f"/api/v1{path}"
    sent: dict[str, Any] = {"headers": headers}
    if route.body is not None:
        sent = {"content": b"{}", "headers": {**headers, "Content-Type": route.body.kinds[0]}}
    return (await kaiwo.client.request(route.method, path, **sent)).status_code


@pytest.mark.parametrize("route", WRITES, ids=lambda route: f"{route.method} {route.path}")
def test_every_write_route_leaves_a_record(route: Route, tmp_path: Path) -> None:
    """Done or refused, with a good token and with a wrong one."""

    async def work() -> list[int]:
        async with world(tmp_path, nodes=1) as kaiwo:
            return [await send(kaiwo, route, headers) for headers in (kaiwo.bearer, WRONG)]

    statuses = run(work())
    found = [each for each in audit_of(tmp_path) if each.action == action_of(route.method, route.path)]
    assert [each.outcome == "done" for each in found] == [status < 400 for status in statuses], (statuses, found)
    assert all(each.detail for each in found if each.outcome != "done")
    if route.path not in ("/sessions", agents.REPORT_ROUTE.path):
        assert found[0].person == process_owner()
        assert (found[0].role, found[0].credential) == ("admin", "token")
    assert found[1].person == ""


def _last(home: Path, action: str) -> AuditRecord:
    return [each for each in audit_of(home) if each.action == action][-1]


def test_a_change_names_the_old_and_the_new_value_and_the_reason(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.post("/manifests", QUEUE % 2)
            assert (await kaiwo.post("/manifests", QUEUE % 4, reason="they bought two")).status_code == 200
            await kaiwo.post("/partitions/policy", {"policy": "on"}, reason="night shift")
            await kaiwo.submit("train", gpus=1, simulate="1h", env={"KEY": "not for the audit"})
            await kaiwo.until_state("train", "running")
            await kaiwo.post("/nodes/node-0/drain", {"reason": "new fan"})
            await kaiwo.client.delete("/api/v1/workloads/default/train?reason=mistake")

    run(work())
    queue = _last(tmp_path, "put-queue")
    assert (queue.object, queue.reason) == ("queue/lab", "they bought two")
    assert queue.old["gpu"]["quota"] == 2000
    assert queue.new["gpu"]["quota"] == 4000
    policy = _last(tmp_path, "set-partition-policy")
    assert (policy.old, policy.new, policy.reason) == ("dry-run", "on", "night shift")
    drain = _last(tmp_path, "drain")
    assert (drain.object, drain.old, drain.reason) == ("node/node-0", {"cordoned": False}, "new fan")
    assert drain.new["cordoned"] is True
    cancel = _last(tmp_path, "cancel")
    assert (cancel.object, cancel.reason) == ("workload/default/train", "mistake")
    assert cancel.new in ("cancelled", "stopping")
    assert _last(tmp_path, "submit").new == {
        "queue": "default", "user": process_owner(), "priority": 50, "pods": 1, "gpu_milli": 1000,
    }  # fmt: skip
    start = _last(tmp_path, "start")
    assert (start.person, start.object) == ("scheduler", "workload/default/train")
    assert start.reason


def test_what_a_person_may_not_do_is_recorded_with_the_name(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            access = kaiwo.context.access
            code = access.sessions.new_code(Identity("eve", AccessRole.VIEWER, "token"))
            secret = access.open_session(code)
            answer = await kaiwo.client.post(
                "/api/v1/nodes/node-0/cordon", headers={"Authorization": f"Bearer {secret}"}
            )
            assert answer.status_code == 403

    run(work())
    (cordon,) = [each for each in audit_of(tmp_path) if each.action == "cordon"]
    assert (cordon.person, cordon.role, cordon.outcome) == ("eve", "viewer", "refused")
    assert cordon.credential.startswith("session-")
    assert "may not" in cordon.detail


def test_strangers_cannot_fill_the_audit(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            for _ in range(200):
                await kaiwo.client.post("/api/v1/nodes/node-0/cordon", headers=WRONG)

    run(work())
    assert 20 < len(audit_of(tmp_path)) < 150


def test_operators_and_admins_read_the_audit_page_by_page(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            for index in range(5):
                await kaiwo.post(f"/nodes/node-0/{'un' * (index % 2)}cordon", reason=f"try {index}")
            await kaiwo.submit("one", hold=True)
            seen, before = list[str](), 0
            while True:
                page = decode(await kaiwo.get("/audit", object="node", limit=2, before=before), AuditPageView)
                assert len(page.items) <= 2
                seen += [each.reason for each in page.items]
                before = page.next
                if not before:
                    break
            assert seen == [f"try {index}" for index in (4, 3, 2, 1, 0)]
            assert page.head == kaiwo.context.audit.head.hash
            mine = decode(await kaiwo.get("/audit", person=process_owner(), action="submit"), AuditPageView)
            assert [each.object for each in mine.items] == ["workload/default/one"]
            assert decode(await kaiwo.get("/audit", since="2999-01-01"), AuditPageView).items == []
            assert (await kaiwo.get("/audit", since="soon")).status_code == 400
            for role, status in ((AccessRole.USER, 403), (AccessRole.OPERATOR, 200)):
                secret = kaiwo.context.access.open_session(
                    kaiwo.context.access.sessions.new_code(Identity("eve", role, "token"))
                )
                answer = await kaiwo.client.get("/api/v1/audit", headers={"Authorization": f"Bearer {secret}"})
                assert answer.status_code == status

    run(work())


def test_a_write_that_cannot_be_recorded_is_refused_and_what_runs_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk people's changes are refused; the ends of runs are still taken, and are in order afterwards."""

    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("short", gpus=1, simulate="1s")
            with monkeypatch.context() as disk:
                disk.setattr(AuditLog, "_append", full)
                disk.setattr(AuditLog, "_set_aside_room", lambda self: False)
                refused = await kaiwo.post("/nodes/node-0/cordon")
                assert refused.status_code == 503
                assert "No space left" in refused.text
                assert not kaiwo.loop.state.node_objects["node-0"].cordoned
                await kaiwo.until_state("short", "succeeded")
            assert (await kaiwo.post("/nodes/node-0/cordon", reason="room again")).status_code == 200

    run(work())
    outcomes = [(each.outcome, each.reason) for each in audit_of(tmp_path) if each.action == "cordon"]
    assert ("done", "room again") in outcomes
    assert any(outcome == "failed" for outcome, _ in outcomes), "the refusal was recorded when there was room again"
