#!/usr/bin/env bash
# Pin every requirements/*.in, with hashes, for all supported Pythons and machines at once.
set -euo pipefail
cd "$(dirname "$0")/.."

for name in run dev node go; do # run first: dev is held to the same versions
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --no-emit-index-url --no-emit-find-links "$@" "requirements/$name.in" -o "requirements/$name.txt"
done
