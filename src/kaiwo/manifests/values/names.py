"""Check names, labels, environments and commands, and read arrays. What passes is valid for stores and Kubernetes."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kaiwo.manifests.text.field_errors import FieldPath, show

MAX_NAME = 63
MAX_NODE_NAME = 253
MAX_TASKS = 10_000
MAX_INDEX = 9_999_999
MAX_LABELS = 100
MAX_WORD_BYTES = 131_000  # of one argument or variable: Linux accepts 128 KiB
DEFAULT_NAMESPACE = "default"
ARRAY_LABEL = "kaiwo.ai/array"
INDEX_LABEL = "kaiwo.ai/array-index"
SLOTS_LABEL = "kaiwo.ai/array-slots"  # how many tasks of the array run at once

LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
NAME = rf"{LABEL}(?:\.{LABEL})*"
_LABEL = re.compile(LABEL)
_NAME = re.compile(NAME)
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_SPAN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?(?::([0-9]{1,9}))?")
_AT_ONCE = re.compile(r"%([0-9]{1,9})")
_ENDS = f"begin and end with a letter or digit, and have at most {MAX_NAME} characters"
_NAME_RULE = f"a name must use lower-case letters, digits, '-' and '.', {_ENDS}"
_NAMESPACE_RULE = f"a namespace must use lower-case letters, digits and '-', {_ENDS}"
_CONTAINER_RULE = f"a container's name must use lower-case letters, digits and '-', {_ENDS}"
_NODE_RULE = "a node's name must use lower-case letters, digits, '-' and '.', and begin and end with a letter or digit"


def all_tasks(array: str) -> str:
    """All tasks of the array `default/sweep`. No workload can have such a name."""
    return f"{array}-*"


def read_name(value: object, path: FieldPath) -> str:
    return _matched(value, path, _NAME, _NAME_RULE)


def read_namespace(value: object, path: FieldPath) -> str:
    return _matched(value, path, _LABEL, _NAMESPACE_RULE)


def read_container_name(value: object, path: FieldPath) -> str:
    return _matched(value, path, _LABEL, _CONTAINER_RULE)


def read_node_name(value: object, path: FieldPath) -> str:
    return _matched(value, path, _NAME, _NODE_RULE, MAX_NODE_NAME)


def read_reference(value: object, path: FieldPath, namespace: str) -> str:
    """Another workload: `name`, or `namespace/name`."""
    text = value if isinstance(value, str) else ""
    before, slash, after = text.partition("/")
    if not slash:
        return f"{namespace}/{read_name(value, path)}"
    return f"{read_namespace(before, path)}/{read_name(after, path)}"


def check_labels(labels: Mapping[str, str], path: FieldPath) -> dict[str, str]:
    if len(labels) > MAX_LABELS:
        raise path.error(f"has {len(labels)} labels and the maximum is {MAX_LABELS}; use fewer")
    for key, value in labels.items():
        check_label_key(key, path)
        check_label_value(value, path.inner(key))
    return dict(labels)


def check_label_value(value: str, path: FieldPath) -> None:
    """The value of a label or a taint: empty, or a name."""
    if value and (len(value) > MAX_NAME or not _LABEL_NAME.fullmatch(value)):
        raise path.error(
            f"is {show(value)}, but a label's value has at most {MAX_NAME} letters, digits, '-', '_' or '.', "
            "and begins and ends with a letter or digit; shorten or change it"
        )


def check_label_key(key: str, path: FieldPath) -> None:
    """`name` or `prefix/name`."""
    prefix, slash, name = key.rpartition("/")
    good_prefix = not slash or (len(prefix) <= 253 and _NAME.fullmatch(prefix))
    if not (good_prefix and len(name) <= MAX_NAME and _LABEL_NAME.fullmatch(name)):
        raise path.error(
            f"has the key {show(key)}, but a key is a name of letters, digits, '-', '_' and '.', with a prefix such as "
            f"example.com/ if you like; change it"
        )


def read_level(value: object, path: FieldPath) -> str:
    """A level of a topology: its name, or the node label that it is read from."""
    if not isinstance(value, str) or not value:
        raise path.error(f'is {show(value)}, which is not a level; write its name or its node label, such as "leaf"')
    check_label_key(value, path)
    return value


def check_env(env: Mapping[str, str], path: FieldPath) -> dict[str, str]:
    """Refuse names and values that no process environment accepts. The values are never shown."""
    for name, value in env.items():
        _check_size(value, path.inner(name))
        if len(name) > 256 or not _ENV_NAME.fullmatch(name):
            raise path.error(
                f"has the variable {show(name)}, but its name must have letters, digits and '_' "
                "and not begin with a digit; rename it"
            )
    return dict(env)


def check_command(words: Sequence[str], path: FieldPath) -> tuple[str, ...]:
    """Refuse arguments that no process accepts. They are never shown."""
    for index, word in enumerate(words):
        _check_size(word, FieldPath(path.owner, f"{path.field}[{index}]"))
    return tuple(words)


def _check_size(word: str, path: FieldPath) -> None:
    if len(word.encode()) > MAX_WORD_BYTES:
        raise path.error(f"has more than {MAX_WORD_BYTES:,} bytes, which no process accepts; put the text into a file")


class ArrayTasks(NamedTuple):
    indices: tuple[int, ...]
    at_once: int = 0  # how many may run at the same time; 0: all


def read_array(value: object, path: FieldPath) -> ArrayTasks:
    """The tasks of an array: "0-9", "1,3,5", "0-99:2" in steps, "0-999%50" with 50 at once."""
    example = 'write it as "0-9", "1,3,5", "0-99:2" (every second) or "0-999%50" (50 at once)'
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or len(text) > 100_000:
        raise path.error(f"is {show(value)}, which is not an array; {example}")
    found = _AT_ONCE.findall(text)
    spans = _AT_ONCE.sub("", text.replace(" ", ""))
    if len(found) > 1 or "%" in spans or found == ["0"]:
        raise path.error(f"is {show(text)}, but %N says once how many run at the same time; {example}")
    indices: list[int] = []
    for part in spans.split(","):
        indices += _span(part, text, path, len(indices), example)
    if len(set(indices)) < len(indices):
        raise path.error(f"is {show(text)}, which names an index twice; {example}")
    return ArrayTasks(tuple(indices), int(found[0]) if found else 0)


def _span(part: str, text: str, path: FieldPath, before: int, example: str) -> range:
    match = _SPAN.fullmatch(part)
    if match is None:
        raise path.error(f"is {show(text)}, which is not an array; {example}")
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if not step or (match[3] and not match[2]):
        raise path.error(f"is {show(text)}, but a step needs a range and is at least 1; {example}")
    if last < first:
        raise path.error(f"is {show(text)}, but {first}-{last} runs backwards; {example}")
    if last > MAX_INDEX:
        raise path.error(f"is {show(text)}, but an index is at most {MAX_INDEX:,}; {example}")
    span = range(first, last + 1, step)
    if before + len(span) > MAX_TASKS:
        raise path.error(f"is {show(text)}, which is more than {MAX_TASKS:,} tasks; split it into several arrays")
    return span


def _matched(value: object, path: FieldPath, pattern: re.Pattern[str], rule: str, most: int = MAX_NAME) -> str:
    if not isinstance(value, str):
        raise path.error(f"is {show(value)}, but {rule}; put it in quotes if it is a number")
    if value.startswith("($") or "{{" in value or "${" in value:
        raise path.error(f"is {show(value)}, which is a template; fill it in first")
    if not value or len(value) > most or not pattern.fullmatch(value):
        raise path.error(f"is {show(value)}, but {rule}; {_proposal(value)}")
    return value


def _proposal(value: str) -> str:
    fixed = re.sub(r"[^a-z0-9]+", "-", value[:200].lower()).strip("-")[:MAX_NAME].strip("-")
    return f'write "{fixed}", for example' if fixed else 'write "train-1", for example'
