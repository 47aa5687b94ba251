#!/usr/bin/env bash
# Prints how many compilers may run at once here: one a core, but no more than memory allows (2 GiB each).
set -euo pipefail
cores=$(nproc)
memory_kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null || true)
jobs=$((${memory_kib:-$((cores * 2097152))} / 2097152))
((jobs > cores)) && jobs=$cores
((jobs < 1)) && jobs=1
echo "$jobs"
