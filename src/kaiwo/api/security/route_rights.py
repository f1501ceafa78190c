"""The right that each route needs: one table, so that it can be read at a glance. A test compares it with the routes.

A route that is missing here is for administrators only.
"""

from kaiwo.api.security.roles import Right

_BY_RIGHT: dict[Right, tuple[str, ...]] = {
    Right.NONE: ("GET /healthz", "GET /livez", "GET /readyz", "POST /sessions"),
    Right.SCRAPE: ("GET /metrics",),
    Right.REPORT: ("POST /api/agents/{node}/reports",),
    Right.READ: (
        "GET /openapi.json", "GET /version", "GET /status", "GET /cycles",
        "GET /cycles/{number}", "GET /stream",
        "GET /nodes", "GET /nodes/{name}", "GET /gpus", "GET /gpus/use", "GET /gpus/fragments",
        "GET /agents", "GET /partitions",
        "GET /topology", "GET /scale", "GET /series", "GET /series/measures", "GET /series/subjects",
        "GET /defragmentation", "GET /alerts", "GET /alerts/history", "GET /alerts/rules", "GET /alerts/silences",
        "GET /recovery", "GET /workloads/{namespace}/{name}/manifest", "GET /queues/{name}/manifest",
        "GET /reservations/{name}/manifest",
        "GET /queues", "GET /queues/{name}", "GET /shares", "GET /shares/{name}",
        "GET /reservations", "GET /reservations/{name}",
        "GET /workloads", "GET /workloads/counts", "GET /workloads/{namespace}/{name}",
        "GET /workloads/{namespace}/{name}/why",
        "GET /workloads/{namespace}/{name}/logs", "GET /workloads/{namespace}/{name}/attempts",
        "GET /workloads/{namespace}/{name}/console", "GET /workloads/{namespace}/{name}/history", "GET /history",
        "GET /report", "GET /idle", "GET /advice", "GET /capacity", "GET /trends", "GET /adjustments",
        "GET /plugins", "GET /plugins/{name}", "POST /what-if", "GET /policy",
        "GET /whoami", "POST /logins", "DELETE /logins",
    ),
    Right.SUBMIT: (
        "POST /workloads", "DELETE /workloads/{namespace}/{name}",
        "POST /workloads/{namespace}/{name}/hold", "POST /workloads/{namespace}/{name}/release",
        "POST /workloads/{namespace}/{name}/requeue", "POST /workloads/{namespace}/{name}/checkpoint",
        "POST /workloads/{namespace}/{name}/progress",
        "POST /workloads/cancel", "POST /workloads/hold", "POST /workloads/release", "POST /workloads/requeue",
        "POST /workloads/set",
        "POST /manifests", "POST /manifests/delete",
    ),
    Right.OPERATE: (
        "POST /nodes/{name}/cordon", "POST /nodes/{name}/uncordon", "POST /nodes/{name}/drain",
        "POST /nodes/{name}/fail", "POST /nodes/{name}/restore",
        "POST /reservations", "DELETE /reservations/{name}",
        "POST /defragmentation/plan", "POST /defragmentation/run", "POST /defragmentation/abort",
        "GET /audit", "POST /alerts/silences", "DELETE /alerts/silences/{id}", "GET /alerts/channels",
    ),
    Right.ADMINISTER: (
        "POST /partitions/policy", "DELETE /demo", "POST /policy", "POST /policy/undo",
        "POST /plugins/{name}/enable", "POST /plugins/{name}/disable", "POST /plugins/{name}/reload",
        "POST /alerts/channels/{name}/test",
        "GET /tokens", "POST /tokens", "POST /tokens/{id}/rotate", "DELETE /tokens/{id}",
    ),
}  # fmt: skip
RIGHT_OF_ROUTE = {route: right for right, routes in _BY_RIGHT.items() for route in routes}


def right_needed(method: str, path: str) -> Right:
    """`path` as the route has it, with names in braces; reading the head of an answer is reading."""
    return RIGHT_OF_ROUTE.get(f"{'GET' if method == 'HEAD' else method} {path}", Right.ADMINISTER)
