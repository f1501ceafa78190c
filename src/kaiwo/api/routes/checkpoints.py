"""The route by which a running workload reports a checkpoint: work with a recent one loses less when preempted.

In:    a workload, and perhaps when.   Out: when it last saved its work, as it counts from now on.
"""

from typing import Annotated

import msgspec

from kaiwo.api.context import wait_until_visible
from kaiwo.api.endpoint import Call, Route
from kaiwo.api.http.problems import JSON, did_you_mean, invalid, quote
from kaiwo.api.http.request_body import Body, read_object
from kaiwo.api.routes.workloads import NAMED, find_record
from kaiwo.api.views import Outcome
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.timestamps import EXAMPLE, read_past_timestamp_s
from kaiwo.model.reservation import clock_words


class CheckpointForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When it saved its work."""

    at: Annotated[
        str | int, msgspec.Meta(description=f'"{EXAMPLE}", or whole seconds since 1970; now when left out')
    ] = ""


async def checkpoint(call: Call) -> Outcome:
    """Record a checkpoint. A time in the future counts as now, so that a fast clock does not hide lost work."""
    name, at_s = find_record(call).workload.name, _read_at_s(call.body)
    live = call.context.live
    saved_s = await live.cluster.abilities.work.checkpoint(name, at_s, who=call.user)
    await wait_until_visible(
        live, lambda: name not in live.state.workloads or live.state.workloads[name].checkpoint_s >= saved_s
    )
    return Outcome([f"workload {name} last saved its work at {clock_words(saved_s)}"], [], [name])


def _read_at_s(body: bytes) -> int:
    fields = read_object(body) if body else {}
    for field in fields:
        if field != "at":
            raise invalid(f"there is no field {quote(field)}{did_you_mean(field, ['at'])}", field[:100])
    return read_past_timestamp_s(fields["at"], FieldPath("checkpoint", "at")) if "at" in fields else 0


ROUTES = (
    Route(
        "POST", NAMED + "/checkpoint", "Report a checkpoint, taken now or at the given time.", checkpoint, Outcome,
        body=Body((JSON,), CheckpointForm, required=False), errors=(404,),
    ),
)  # fmt: skip
