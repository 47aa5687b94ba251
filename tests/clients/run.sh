#!/usr/bin/env bash
# Runs the clients' tests: tests/clients/run.sh BUILD. The packages go to BUILD/clients, so that sources stay clean. Exit 77: the
# packages cannot be fetched here.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
place=$1/clients
mkdir -p "$place"
cp "$here"/package.json "$here"/package-lock.json "$here"/*.js "$place"
cd "$place"
if ! cmp -s package-lock.json node_modules/.fetched; then
    npm ci --no-audit --no-fund --ignore-scripts || exit 77
    cp package-lock.json node_modules/.fetched
fi
# The page's test talks to a browser over a WebSocket, which node 20 has behind a flag.
flags=()
node --experimental-websocket -e 0 2> /dev/null && flags+=(--experimental-websocket)
exec node "${flags[@]}" --test --test-timeout=120000
