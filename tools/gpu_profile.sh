#!/usr/bin/env bash
# Where the time of a token and of a read goes, by kernel (ncu on graph nodes; clocks are left alone).
# Usage: tools/gpu_profile.sh MODEL [PROMPT_TOKENS]    after tools/gpu_check.sh built the engine
set -euo pipefail
cd "$(dirname "$0")/.."
model=$1 prompt=${2:-2048}
build=${BUILD:-build-gpu}
seq 1 "$prompt" | awk '{printf "%d ", (($1 * 7919) % 151000) + 100}' >/tmp/strata-prompt.txt
summary() { # kernel: launches, microseconds in all, mean
    grep '^"' | awk -F'","' 'NR>1 {n=$5; sub(/\(.*/,"",n); sub(/^void /,"",n); gsub(/strata::cuda::|\(anonymous namespace\)::|<unnamed>::/,"",n); v=$NF; gsub(/[",]/,"",v); t[n]+=v; c[n]++; all+=v}
        END {for (n in t) printf "%10.1f us %6d x %8.2f us %5.1f%%  %s\n", t[n]/1000, c[n], t[n]/1000/c[n], 100*t[n]/all, n; printf "%10.1f us in all\n", all/1000}' | sort -rn
}
profile() { # skip, count, tokens of the prompt, new tokens
    seq 1 "$3" | awk '{printf "%d ", (($1 * 7919) % 151000) + 100}' >/tmp/strata-prompt.txt
    ncu --clock-control none --graph-profiling node --metrics gpu__time_duration.sum --csv --launch-skip "$1" --launch-count "$2" \
        "$build/bin/strata-poly" --model "$model" --device cuda --max-context 40960 --prompt-batch 2048 --no-draft --no-repeats \
        --tokens-file /tmp/strata-prompt.txt --max-new "$4" --json --quiet 2>/dev/null | summary
}
echo "== a token after a short prompt"; profile "${SKIP:-2300}" 460 8 8
echo "== a read of $prompt tokens"; profile "${SKIP_READ:-800}" 700 "$prompt" 1
