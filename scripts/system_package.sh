#!/usr/bin/env bash
# system_package.sh "COMMAND ..." PACKAGE TESTS: have one of these commands if that is possible here, from a package of
# Debian; without any of them pytest skips the tests that need it, by name.
set -euo pipefail
commands=$1
package=$2
tests=$3

for name in $commands; do
    if command -v "$name" >/dev/null; then exit; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing $package for $tests"
    export DEBIAN_FRONTEND=noninteractive
    if apt-get update -qq && apt-get install -y -qq --no-install-recommends "$package" >/dev/null; then exit; fi
fi
echo "no ${commands%% *} here: $tests will be skipped (Debian: sudo apt-get install $package)" >&2
