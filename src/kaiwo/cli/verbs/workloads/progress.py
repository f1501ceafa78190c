"""`kaiwo progress`: report how fast a running workload is."""

import os

import click

from kaiwo.api.views.answers import Outcome
from kaiwo.cli.client.api_client import workload_path
from kaiwo.cli.name_completion import complete_workload
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import full_name
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.errors import ConfigError


@click.command(cls=Verb)
@click.argument("name", required=False, default="", metavar="[WORKLOAD]", shell_complete=complete_workload)
@click.option("--step", metavar="TIME", help="How long a step took: 2.1s, 350ms.")
@click.option("--expected", metavar="TIME", help="How long it should take (default: its fastest step so far).")
@click.option("--bandwidth", metavar="RATE", help="What each GPU sent in collectives (bus bandwidth): 180GB/s.")
@click.option("--steps", metavar="NUMBER", help="Steps done so far.")
@click.option("--pod", metavar="POD", help="Report for one pod (inside a job of several pods: its own).")
def progress(
    name: str, step: str | None, expected: str | None, bandwidth: str | None, steps: str | None, pod: str | None
) -> None:
    """Report how fast a running workload is. Inside a job, the names of the workload and its pod can be left out.

    Kaiwo compares it with what was expected, prefers domains in which work runs well, and finds nodes that stay slow
    beside the others. Report the time that a pod needs before it waits for the other pods: in a gang, all wait for the
    slowest. Every ten seconds is often enough.

    \b
    Examples:
      kaiwo progress train --step 2.1s --expected 2s
      kaiwo progress train --pod main-3 --step 2.1s --steps 1200
      kaiwo progress train --bandwidth 180GB/s
    """
    inside = not name
    name = name or os.environ.get("KAIWO_WORKLOAD", "")
    if not name:
        raise ConfigError("name the workload that makes progress; the name can be left out only inside a job")
    if pod is None and inside and os.environ.get("KAIWO_PODS", "1") != "1":
        pod = os.environ.get("KAIWO_POD")
    given = {"step": step, "expected": expected, "bandwidth": bandwidth, "steps": steps, "pod": pod}
    server = connect_server()
    body = server.post(
        f"{workload_path(full_name(name))}/progress", {key: value for key, value in given.items() if value is not None}
    )
    printing.print_outcome(body, server.decode(body, Outcome))
