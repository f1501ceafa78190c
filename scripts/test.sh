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
forgiven=5 # failures of one group that may be tried again
failed=0
rm -f .pytest_cache/passed_alone

pytest() { # what to call these tests, then pytest's options
    local cache=.pytest_cache/$1 status=0
    shift
    .venv/bin/pytest -o cache_dir="$cache" --cache-clear "$@" || status=$?
    case $status in
    0 | 5) ;; # 5: no test selected, which is not a failure: the options may name a single folder
    1) try_again "$cache" || failed=1 ;;
    *) failed=1 ;;
    esac
}

try_again() { # a few failures beside other tests may be the busy machine's: each must pass alone, and is named
    local names
    names=$(.venv/bin/python -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1]))))' "$1/v/cache/lastfailed")
    [ "$(wc -l <<<"$names")" -le "$forgiven" ] || return 1
    printf 'run again, alone:\n%s\n' "$names"
    .venv/bin/pytest -o cache_dir="$1" --last-failed --last-failed-no-failures none --no-fold-skipped || return 1
    echo "$names" >>.pytest_cache/passed_alone
}

if [ "$size" = fast ]; then
    pytest fast -n "$beside" --dist worksteal -m "not ($alone)" "$@"
else
    scripts/system_package.sh "chromium chromium-browser google-chrome" chromium "the browser tests"
    scripts/system_package.sh promtool prometheus "the tests of alert rules with promtool"
    scripts/system_package.sh prometheus-alertmanager prometheus-alertmanager "the tests with a real Alertmanager"
    npm --prefix ui test || failed=1
    rm -rf .coverage
    KAIWO_COVERAGE=1 pytest fast -n "$beside" --dist worksteal -m "not ($alone)" "$@"
    if [ $# = 0 ]; then # options may leave out tests
        .venv/bin/python -m coverage combine --quiet && .venv/bin/python -m coverage report --skip-covered || failed=1
    fi
    # Each of the two workers takes whole files: those that start a control plane start one each.
    pytest slow -n 2 --dist loadfile -m "(slow or browser) and not serial" --no-fold-skipped "$@"
    pytest serial -m serial --no-fold-skipped "$@"
fi
[ ! -s .pytest_cache/passed_alone ] || { echo "passed only when they ran again, alone:" && cat .pytest_cache/passed_alone; } >&2
[ "$failed" = 0 ] || echo "some tests failed: see above" >&2
exit "$failed"
