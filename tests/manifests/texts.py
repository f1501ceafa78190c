"""How the tests of this folder ask."""

from typing import Any

import pytest

from kaiwo.manifests import Parsed, parse, parse_all
from kaiwo.model.errors import ConfigError
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import Program


def one(document: dict[str, Any] | str) -> tuple[Workload, Program]:
    """The one workload of a document."""
    (submission,) = _parsed(document).submissions
    return submission


def request_of(document: dict[str, Any] | str) -> Request:
    """What the pods of its only role ask for."""
    (role,) = one(document)[0].roles
    return role.request


def refusal(document: dict[str, Any] | str) -> ConfigError:
    """The error it gets: one line, not too long."""
    with pytest.raises(ConfigError) as caught:
        _parsed(document)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 800
    return caught.value


def check_refusal(document: dict[str, Any] | str, field: str, parts: list[str]) -> None:
    """It names the field, and says all of this."""
    error = refusal(document)
    assert error.field == field, str(error)
    assert [part for part in parts if part not in str(error)] == [], str(error)


def warnings_of(document: dict[str, Any] | str) -> str:
    """All its warnings, one a line."""
    return "\n".join(_parsed(document).warnings)


def pod(annotations: dict[str, Any] | None = None, resources: Any = None, **spec: Any) -> dict[str, Any]:
    """A Pod with one container."""
    container = {"name": "main", "image": "example/main", **({"resources": resources} if resources is not None else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": annotations or {}},
        "spec": {"containers": [container], "restartPolicy": "Never", **spec},
    }


def job(**spec: Any) -> dict[str, Any]:
    """A batch Job around the same Pod."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": pod()["spec"]}, **spec},
    }


def kaiwojob(**spec: Any) -> dict[str, Any]:
    """Upstream's kind."""
    return {
        "apiVersion": "kaiwo.silogen.ai/v1alpha1",
        "kind": "KaiwoJob",
        "metadata": {"name": "k"},
        "spec": spec,
    }


def queue(**spec: Any) -> dict[str, Any]:
    """A KaiwoQueue."""
    return {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue", "metadata": {"name": "q"}, "spec": spec}


def _parsed(document: dict[str, Any] | str) -> Parsed:
    return parse_all(document) if isinstance(document, str) else parse(document)
