"""Turn a mapping into a `Submission`, with our own sentences for what does not fit.

In:    a mapping that passed `trees`.   Out: the form, or one ConfigError that names the field.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from kaiwo.manifests.fields import unknown_field
from kaiwo.manifests.places import Place, join, name_type, show, suggest
from kaiwo.manifests.quantities import read_whole_gpus
from kaiwo.manifests.submissions import SubGroupForm, Submission, TolerationForm

FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(Submission))
_ERROR = re.compile(r"(?P<fact>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_KUBERNETES_WORDS = {
    "metadata": "name: train",
    "spec": "gpus: 4",
    "containers": 'command: ["python", "train.py"]',
    "template": "pods: 8",
    "resources": "cpu: 4",
    "replicas": "pods: 8",
    "parallelism": "pods: 8",
    "args": 'command: ["python", "train.py"]',
    "gpusPerReplica": "gpus: 4",
}
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "empty",
}
_EXAMPLES = {
    "gpus": "write a whole number, such as 4; for a part of one GPU write gpuFraction",
    "gpuFraction": 'write it as "0.5"',
    "gpuMemory": "write MiB, such as 16000",
    "gpuModels": 'write ["MI300X"]',
    "gpuPartition": 'write it as "CPX"',
    "cpu": 'write it as 4 or "500m"',
    "memory": 'write it as "16Gi"',
    "command": 'write a list, such as ["python", "train.py"]',
    "env": 'write a mapping to text in quotes, such as PORT: "8080"',
    "labels": 'write a mapping to text in quotes, such as team: "7"',
    "nodeSelector": 'write a mapping to text in quotes, such as zone: "1"',
    "tolerations": "write a list of mappings, such as [{key: gpu, operator: Exists}]",
    "subGroups": "write a list of mappings, such as [{name: replica-0, pods: 2}]",
    "time": 'write it as "2h30m"',
    "estimate": 'write it as "2h30m"',
    "preemptionDelay": 'write it as "10m"',
    "restartCost": 'write it as "5m"',
    "simulate": 'write it as "10m"',
    "array": 'write it in quotes, such as "0-9"',
    "after": 'write a list of names, such as ["prepare"]',
}


def read_form(document: Mapping[str, Any], owner: str) -> Submission:
    """The form, its types checked."""
    for name, value in document.items():
        if name not in FIELDS:
            raise _unknown(name, owner)
        if value is None:
            raise Place(owner, name).error("is empty; give it a value, or leave it out")
    if "name" not in document:
        raise Place(owner, "name").error("is missing; give the workload one, such as `name: train`")
    try:
        return msgspec.convert(dict(document), Submission)
    except msgspec.ValidationError as error:
        raise _explain(str(error), document, owner) from None


def _unknown(name: str, owner: str) -> Exception:
    if name in _KUBERNETES_WORDS:
        return Place(owner, name).error(
            f"is not a field of the short form; its fields stand at the top, such as `{_KUBERNETES_WORDS[name]}`, "
            "or set `kind` for a Kubernetes object"
        )
    return unknown_field(name, FIELDS, Place(owner, name))


def _explain(message: str, document: Mapping[str, Any], owner: str) -> Exception:
    """msgspec says where and which type; the rest is ours. Values are not shown: they may be secrets."""
    match = _ERROR.fullmatch(message)
    fact, path = (match["fact"], match["path"] or "it") if match else (message, "it")
    field = re.split(r"[.\[]", path, maxsplit=1)[0]
    path = path.replace("[...]", f".{_first_not_text(document.get(field))}")
    place = Place(owner, path)
    way_out = _EXAMPLES.get(field, "change it")
    if types := re.fullmatch(r"Expected `(.*)`, got `(.*)`", fact):
        expected = " or ".join(dict.fromkeys(_WORDS.get(word, word) for word in types[1].split(" | ")))
        got = name_type(document[field]) if path == field and field in document else _WORDS.get(types[2], types[2])
        if field == "gpus" and isinstance(document[field], float):
            read_whole_gpus(document[field], place, "gpuFraction")
        default = "put it in quotes" if expected == "text" else f"write {expected}"
        return place.error(f"must be {expected}, not {got}; {_EXAMPLES.get(field, default)}")
    if fact.startswith("Invalid enum value"):
        return place.error(f"{_wrong_choice(document.get(field), field)}")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", fact):
        inner = SubGroupForm if field == "subGroups" else TolerationForm
        names = [item.encode_name for item in msgspec.structs.fields(inner)]
        return unknown_field(unknown[1], names, Place(owner, f"{place.field}.{unknown[1]}"))
    return place.error(f"does not fit the form ({fact}); {way_out}")


def _first_not_text(value: object) -> str:
    """The key whose value is of the wrong type: msgspec does not name it."""
    wrong = (key for key, item in value.items() if not isinstance(item, str)) if isinstance(value, dict) else iter(())
    return join([next(wrong, "?")])


def _wrong_choice(value: object, field: str) -> str:
    choices = {
        "type": ("training", "batch", "inference", "notebook"),
        "kind": ("Workload",),
        "apiVersion": ("kaiwo.ai/v1alpha2",),
        "tolerations": ("operator Equal or Exists", "effect NoSchedule, PreferNoSchedule or NoExecute"),
    }.get(field, ())
    if isinstance(value, str):
        return f"is {show(value)}; write {', '.join(choices)}{suggest(value, choices)}"
    return f"has a value that is not known; write {', '.join(choices)}"
