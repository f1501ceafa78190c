"""Read an array from the API: as one row, or all of its tasks."""

from typing import Any

from kaiwo.cli.client.api_client import ApiClient
from kaiwo.cli.lists.object_kinds import WORKLOADS
from kaiwo.cli.lists.show_list import ListRequest, fetch_list
from kaiwo.cli.name_completion import ARRAY_LABEL


def read_tasks(server: ApiClient, full: str, folds: bool) -> list[Any]:
    """The tasks of the array with this base name, or its one row, as plain data; empty: there is no such array."""
    namespace, _, base = full.removesuffix("-*").partition("/")
    query = {"fold": "true"} if folds else {}
    request = ListRequest(labels=(f"{ARRAY_LABEL}={base}",), sort_by="name", limit=0, query=query)
    return [item for item in fetch_list(server, WORKLOADS, request)[0] if item["name"].startswith(f"{namespace}/")]
