#!/usr/bin/env bash
# Where the time of a token and of a read goes, by kernel and grid (ncu on graph nodes; clocks are left alone).
# Usage: tools/gpu_profile.sh MODEL [PROMPT_TOKENS]    after tools/gpu_check.sh built the engine
set -euo pipefail
cd "$(dirname "$0")/.."
model=$1 prompt=${2:-2048}
build=${BUILD:-build-gpu}
summary() { # launches, microseconds in all, mean, kernel and grid
    grep '^"' | awk -F'","' 'NR>1 {n=$5; sub(/\(.*/,"",n); sub(/^void /,"",n); gsub(/strata::cuda::|\(anonymous namespace\)::|<unnamed>::/,"",n); n=n " " $9; v=$NF; gsub(/[",]/,"",v); t[n]+=v; c[n]++; all+=v}
        END {for (n in t) printf "%10.1f us %6d x %8.2f us %5.1f%%  %s\n", t[n]/1000, c[n], t[n]/1000/c[n], 100*t[n]/all, n; printf "%10.1f us in all\n", all/1000}' | sort -rn
}
profile() { # kernels by name (regular expression), how many to skip and to count, tokens of the prompt, new tokens
    seq 1 "$4" | awk '{printf "%d ", (($1 * 7919) % 151000) + 100}' >/tmp/strata-prompt.txt
    ncu --clock-control none --cache-control none --graph-profiling node --metrics gpu__time_duration.sum --csv \
        --kernel-name "regex:$1" --launch-skip "$2" --launch-count "$3" \
        "$build/bin/strata-poly" --model "$model" --device cuda --max-context 40960 --prompt-batch 2048 --no-draft --no-repeats \
        --tokens-file /tmp/strata-prompt.txt --max-new "$5" --json --quiet 2>/dev/null | summary
}
echo "== two tokens after a short prompt"
profile 'window_kernel|answer_kernel|merge_kernel|matvec_kernel|norm_float_kernel|up_kernel|down_kernel|stretch_kernel|join_kernel' "${SKIP:-1100}" 510 8 12
echo "== part of a read of $prompt tokens"
profile 'matmat|grouped|prompt_kernel|conv_kernel|net_kernel|norm|float_kernel|route|group_kernel|activate|quantise|combine|prepare' "${SKIP_READ:-1100}" 600 "$prompt" 1
