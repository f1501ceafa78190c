"""The table of Kaiwo's annotation and label keys: who writes each, and which form its value has.

The admission policy of the chart enforces it on pods and on the templates of built-in workloads while Kaiwo is down,
too; docs/security.md shows it. Tests compare both with this table, and each form with the code that reads the value: a
form accepts at least what is read. Forms are in the syntax that Python and RE2 share, and match the whole value.
"""

import enum
from typing import NamedTuple

from kaiwo.manifests.kinds.object_metadata import MAX_USER
from kaiwo.manifests.values.gpu_request import GRADES, ISOLATIONS
from kaiwo.manifests.values.names import MAX_NAME, NAME
from kaiwo.manifests.values.priorities import TYPE_PRIORITIES
from kaiwo.model.gpus.gpu import ANYONE, EQUALITIES, NOBODY
from kaiwo.model.network.constraint import STRATEGIES
from kaiwo.model.policy import STRATEGY_PLACEMENTS
from kaiwo.model.workload_fields import FIELDS, ValueKind


class KeyWriter(enum.Enum):
    SCHEDULER = "the scheduler"
    AGENT = "the node's agent"
    USERS = "users"
    REQUESTER = "the webhook, or users with their own name"


class KeyRow(NamedTuple):
    name: str  # after `kaiwo.ai/`
    writer: KeyWriter
    form: str = ""  # empty: any text
    max_characters: int = 63
    is_request: bool = False  # what a pod asks for and who pays: it does not change once the pod is bound
    on: str = "pods"


_NUMBER = r"(?:[0-9]{1,25}(?:\.[0-9]{0,25})?|\.[0-9]{1,25})"
_FLAG = "true|false"
_COUNT = "[0-9]{1,12}"
_EQUAL = f"(?:{'|'.join(EQUALITIES)})"
_SHARE_RULE = rf"{ANYONE}|{NOBODY}|{_EQUAL}(?:(?:,|, |\.){_EQUAL}){{0,2}}"
_DATE, _TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}", r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?"
MAX_LEVEL = 317  # a node label: a prefix of 253 characters and a name
_SETTINGS = {
    ValueKind.BOOLEAN: _FLAG,
    ValueKind.DURATION: r" *(?:[0-9]{1,12}|(?:[0-9]{1,12}(?:\.[0-9]{1,9})?(?:ms|[wdhms])){1,6}) *",
    ValueKind.TIMESTAMP: rf" *{_DATE}[Tt ]{_TIME}(?:[Zz]|[+-][0-9]{{2}}:[0-9]{{2}}) *",
    ValueKind.NAME: NAME,
    ValueKind.COUNT: "[0-9]{1,9}",
    ValueKind.LEVEL: rf"(?:{NAME}/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?",
    ValueKind.STRATEGY: "|".join(STRATEGIES),
    ValueKind.NODE_STRATEGY: "|".join(STRATEGY_PLACEMENTS),
    ValueKind.BANDWIDTH: r"[0-9]{1,9}(?:\.[0-9]{1,6})? ?[MGT](?:bps|B/s)",
}
_OURS, _USERS = KeyWriter.SCHEDULER, KeyWriter.USERS

KEYS = (
    KeyRow("granted-devices", _OURS),
    KeyRow("grant-signature", _OURS),
    KeyRow("kept-space", _OURS),
    KeyRow("lost-places", _OURS),
    KeyRow("planned-start", _OURS),
    KeyRow("planned-place", _OURS),
    KeyRow("fills-until", _OURS),
    KeyRow("gpu-grade", _OURS),
    KeyRow("gpu-note", _OURS),
    KeyRow("rank", _OURS),
    KeyRow("world-size", _OURS),
    KeyRow("rank-hosts", _OURS),
    KeyRow("user", KeyWriter.REQUESTER, max_characters=MAX_USER),
    KeyRow("gpu-fraction", _USERS, r" *\+?(?:0{0,25}\.[0-9]{1,25}|0{0,24}1(?:\.0{0,25})?) *", is_request=True),
    KeyRow("gpu-memory", _USERS, rf" *\+?{_NUMBER}(?:[eE][+-]?[0-9]{{1,2}}|[a-zA-Z]{{0,2}}) *", is_request=True),
    KeyRow("gpu-devices", _USERS, _COUNT, is_request=True),
    KeyRow("gpu-sharing", _USERS, _FLAG, is_request=True),
    KeyRow("gpu-isolation", _USERS, "|".join(ISOLATIONS), is_request=True),
    KeyRow("gpu-isolation-grade", _USERS, "|".join(GRADES), is_request=True),
    KeyRow("gpu-share-with", _USERS, _SHARE_RULE, is_request=True),
    KeyRow("gpu-threads", _USERS, "[0-9]{1,3}", is_request=True),
    KeyRow("gpu-models", _USERS, max_characters=1000, is_request=True),
    KeyRow("gpu-partition", _USERS, " *[A-Za-z0-9.+]{1,16} *", is_request=True),
    KeyRow("queue", _USERS, NAME, MAX_NAME, is_request=True),
    KeyRow("type", _USERS, "|".join(TYPE_PRIORITIES)),
    KeyRow("priority", _USERS, "-?[0-9]{1,10}"),
    KeyRow("hold", _USERS, _FLAG),
    KeyRow("gang", _USERS, max_characters=253),
    KeyRow("gang-size", _USERS, _COUNT),
    KeyRow("min-pods", _USERS, _COUNT),
    KeyRow("leader", _USERS, _FLAG),
    KeyRow("last-checkpoint", _USERS),  # programs write it: a mistake there is a warning, never a refusal
    KeyRow("progress", _USERS),  # the same
    KeyRow("simulate", _USERS),
    KeyRow("run-locally", _USERS),
    *(
        KeyRow(
            field.annotation.removeprefix("kaiwo.ai/"),
            _USERS,
            _SETTINGS[field.kind],
            MAX_LEVEL if field.kind is ValueKind.LEVEL else 63,
            # Work above its queue's quota starts because it may be stopped: it cannot say otherwise later.
            is_request=field.name == "preemptible",
        )
        for field in FIELDS
    ),
    KeyRow("devices", KeyWriter.AGENT, on="nodes"),
    KeyRow("partition-change", _OURS, on="nodes"),
)
RESERVED = tuple(row.name for row in KEYS if row.writer is _OURS and row.on == "pods")
