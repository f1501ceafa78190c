#!/usr/bin/env bash
# Have a Chromium for the browser tests if that is possible here; without one pytest skips them by name.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then exit; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing Chromium for the browser tests"
    export DEBIAN_FRONTEND=noninteractive
    if apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; then exit; fi
fi
echo "no Chromium here: the browser tests will be skipped (Debian: sudo apt-get install chromium)" >&2
