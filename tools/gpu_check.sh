#!/usr/bin/env bash
# Builds the engine alone on a machine with a compiler, CMake and CUDA, runs the card's tests and benchmarks, and prints one
# short table last. Usage: tools/gpu_check.sh [--no-bench] [--sanitize] [--layers N]
#   --no-bench   tests only          --sanitize   a small run under compute-sanitizer
#   --layers N   layers of the benchmark's model (0: all, 22 GB; the default)
set -euo pipefail
cd "$(dirname "$0")/.."
bench=1 sanitize=0 layers=0
while [ $# -gt 0 ]; do
    case "$1" in
        --no-bench) bench=0 ;;
        --sanitize) sanitize=1 ;;
        --layers) layers=$2; shift ;;
        *) echo "gpu_check.sh: unknown flag $1" >&2; exit 2 ;;
    esac
    shift
done
build=${BUILD:-build-gpu}
began=$SECONDS
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DPOLYSTRATA_SERVER=OFF -DPOLYSTRATA_TESTS=OFF -DPOLYSTRATA_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES="${ARCH:-native}" $(command -v ninja >/dev/null && echo -G Ninja) >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
cmake --build "$build" -j "$(nproc)" --target strata-poly gpu_test gpu_model >>"$build.log" 2>&1 || { grep -E 'error|FAILED' "$build.log" | head -40; exit 1; }
echo "built in $((SECONDS - began)) s"

status=0
"$build/bin/gpu_test" tests/data || status=$?
if [ "$sanitize" = 1 ] && command -v compute-sanitizer >/dev/null; then
    compute-sanitizer --tool memcheck --error-exitcode 9 "$build/bin/strata-poly" --model tests/data/qwen35moe/tiny.gguf --device cuda \
        --tokens 1,2,3,4,5,6,7,8,9,10,11,12 --max-new 12 --json >/dev/null || { echo "compute-sanitizer found errors"; status=1; }
fi
[ "$bench" = 1 ] || exit $status

model=${MODEL:-/tmp/strata-bench-$layers.gguf}
[ -f "$model" ] || { t=$SECONDS; "$build/bin/gpu_model" qwen3.6-35b-a3b ud-q4_k_m "$layers" "$model"; echo "model made in $((SECONDS - t)) s"; }
run() { # prompt tokens, new tokens: read and write speed
    seq 1 "$1" | awk '{printf "%d ", (($1 * 7919) % 151000) + 100}' >/tmp/strata-prompt.txt
    "$build/bin/strata-poly" --model "$model" --device cuda --max-context 40960 --prompt-batch 2048 --no-draft --no-repeats \
        --tokens-file /tmp/strata-prompt.txt --max-new "$2" --json --quiet | grep '"done"' |
        sed -E 's/.*"read_tps":([0-9.]+).*"write_tps":([0-9.]+).*/\1 \2/'
}
nvidia-smi --query-gpu=name,clocks.sm,clocks.mem --format=csv,noheader || true
echo "prompt  read tokens/s  write tokens/s   ($(basename "$model"), everything in VRAM, $(date +%F))"
for prompt in ${PROMPTS:-128 2048 8192 32768}; do
    printf '%6d  %s\n' "$prompt" "$(run "$prompt" 128)"
done
exit $status
