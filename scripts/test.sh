#!/usr/bin/env bash
# test.sh fast|all [pytest options]: the quick tests side by side; with "all", also the web page's own tests before
# them, how much of the pure layers they cover, then the slow tests on two workers, and last, one at a time, the tests
# that measure time and need the machine for themselves.
set -euo pipefail
cd "$(dirname "$0")/.."
size=$1
shift
alone="serial or slow or browser"
beside=3 # on two cores: many a test waits for a clock or a process
failed=0

pytest() { # no test selected (status 5) is not a failure: the options may name a single folder
    local status=0
    .venv/bin/pytest "$@" || status=$?
    [ "$status" = 0 ] || [ "$status" = 5 ] || failed=1
}

if [ "$size" = fast ]; then
    pytest -n "$beside" -m "not ($alone)" "$@"
else
    scripts/chromium.sh
    npm --prefix ui test || failed=1
    rm -rf .coverage
    KAIWO_COVERAGE=1 pytest -n "$beside" -m "not ($alone)" "$@"
    if [ $# = 0 ]; then # options may leave out tests
        .venv/bin/python -m coverage combine --quiet && .venv/bin/python -m coverage report --skip-covered || failed=1
    fi
    # Each of the two workers takes whole files: those that start a control plane start one each.
    pytest -n 2 --dist loadfile -m "(slow or browser) and not serial" --no-fold-skipped "$@"
    pytest -m serial --no-fold-skipped "$@"
fi
[ "$failed" = 0 ] || echo "some tests failed: see above" >&2
exit "$failed"
