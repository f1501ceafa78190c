#!/usr/bin/env bash
# Make the plain manifests from the chart: deploy/render.sh [FOLDER]. Helm is the one of `make controlplane`, or HELM.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
helm=${HELM:-$(../tests/controlplane/build.sh --folder)/helm}
out=${1:-manifests}
namespace=kaiwo-system

render() { # options of helm; prints without the names of the templates and the empty lines between them
    "$helm" template kaiwo chart --namespace "$namespace" "$@" | grep -v -e '^# Source: ' -e '^$'
}

mkdir -p "$out"
{
    echo "# The scheduler. Made by deploy/render.sh from deploy/chart: change that."
    printf -- '---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n' "$namespace"
    printf '  labels: {app.kubernetes.io/part-of: kaiwo}\n'
    render
} >"$out/scheduler.yaml"
{
    echo "# The agent for GPU nodes. Made by deploy/render.sh from deploy/chart: change that."
    render --set agent.enabled=true --show-only templates/agent.yaml
} >"$out/agent.yaml"
