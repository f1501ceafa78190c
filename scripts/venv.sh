#!/usr/bin/env bash
# Make .venv with the first Python >= 3.11 that works here.
set -euo pipefail

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
can_make_venvs() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

find_python() { # prints the first interpreter that passes the given checks
    local candidate check
    for candidate in $(type -aP python3.13 python3.12 python3.11 python3 | grep -v "^$PWD/.venv/" || true); do
        for check in "$@"; do "$check" "$candidate" || continue 2; done
        echo "$candidate"
        return
    done
    return 1
}

if ! python=$(find_python is_new_enough can_make_venvs); then
    if ! python=$(find_python is_new_enough); then
        echo "kaiwo needs Python 3.11 or newer; install python3 (Debian 12 or later: apt-get install python3 python3-venv)" >&2
        exit 1
    fi
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "$python has no venv module; install it first (Debian: sudo apt-get install python3-venv)" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq python3-venv
    python=$(find_python is_new_enough can_make_venvs)
fi

"$python" -m venv --clear .venv
echo "made .venv with $python ($("$python" -V))"
