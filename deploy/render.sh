#!/usr/bin/env bash
# Make the plain manifests from the chart: deploy/render.sh [FOLDER]. Helm is the one of `make controlplane`, or HELM.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
helm=${HELM:-$(../tests/controlplane/build.sh --folder)/helm}
out=${1:-manifests}
namespace=kaiwo-system
image='# No image is published yet: `kaiwo install --dry-run --image NAME` puts yours in the place of registry.example/kaiwo.'

tidy() { # remove the names of the templates and empty lines
    grep -v -e '^# Source: ' -e '^$'
}

render() { # options of helm
    "$helm" template kaiwo chart --namespace "$namespace" --set agent.enabled=true \
        --set image.repository=registry.example/kaiwo "$@"
}

without_agent() { # the scheduler accepts agents, whether they are installed with it, later or never
    awk '/^---$/ {start = 1; next} /^# Source: / {skip = /agent.yaml$/} !skip {if (start) {print "---"; start = 0}; print}'
}

mkdir -p "$out"
{
    echo "# The scheduler. Made by deploy/render.sh from deploy/chart; change the chart instead."
    echo "$image"
    printf -- '---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n' "$namespace"
    printf '  labels: {app.kubernetes.io/part-of: kaiwo}\n'
    render | without_agent | tidy
} >"$out/scheduler.yaml"
{
    echo "# The agent for GPU nodes. Made by deploy/render.sh from deploy/chart; change the chart instead."
    echo "$image"
    render --show-only templates/agent.yaml | tidy
} >"$out/agent.yaml"
