#!/usr/bin/env bash
# The same answers and the same state, however they come about: with guesses and without, windows of 1 to 8 rows, draft block and
# repeats on and off, 1 and 4 threads, beside three other conversations, continued after being parked, and after being saved and
# loaded. Prints a line a way; exit 1 where one differs. Made for models too large for the test suite:
#   build/bin/polystrata synth --like qwen3.6-35b-a3b --layers 4 --out /tmp/model.gguf && tools/check_answers.sh /tmp/model.gguf
#   tools/check_answers.sh MODEL --copy     measures a copy task instead: tokens per second with windows of 8 and without guesses
#   tools/check_answers.sh MODEL --plain    the same where there is nothing to guess right; processor time tells more
#                                           than the clock on a machine that does other things
# POLY names another engine, NEW how many tokens an answer has (24).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
model=${1:?usage: tools/check_answers.sh MODEL.gguf [--copy|--plain]}
mode=${2:-}
poly=${POLY:-build/bin/strata-poly}
new=${NEW:-24}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Ids of a prompt from a seed; the last third repeats the first, so that there is something to guess.
prompt() { awk -v s="$1" -v n="$2" 'BEGIN { for (i = 0; i < n; i++) { s = (s * 16807) % 2147483647; a[i] = 1000 + s % 20000 }
    for (i = 0; i < n; i++) printf "%s%d", i ? "," : "", i < 2 * n / 3 ? a[i] : a[i - int(2 * n / 3)] }'; }

# serve NAME FLAGS... : starts an engine as a coprocess.
serve() { coproc ENGINE { exec "$poly" --model "$model" --quiet --max-context 4096 "$@" 2>"$work/log"; }
    in=${ENGINE[1]} out=${ENGINE[0]} pid=$ENGINE_PID line=
    while read -r -u "$out" line && [[ $line != READY* ]]; do :; done
    [[ $line == READY* ]] || { echo "the engine did not start: $(cat "$work/log")"; exit 1; }; }
quit() { echo QUIT >&"$in"; wait "$pid" || true; }
# answers N: reads N answers; tokens[id], hash[id], reused[id], ms[id] (id 0 where none was given).
declare -A tokens hash reused ms
answers() { local left=$1 line id; tokens=() hash=() reused=() ms=()
    while ((left > 0)) && read -r -u "$out" line; do
        id=0; [[ $line =~ \ id=([0-9]+)$ ]] && id=${BASH_REMATCH[1]}
        case $line in
            "T "*) read -r _ token _ <<<"$line"; tokens[$id]+="$token," ;;
            DONE*) set -- $line; ms[$id]=$5 reused[$id]=$9; left=$((left - 1)); [[ $line =~ state_hash=([0-9a-f]+) ]] && hash[$id]=${BASH_REMATCH[1]} ;;
            ERR*) echo "$line"; exit 1 ;;
        esac
    done; ((left == 0)) || { echo "the engine ended: $(tail -1 "$work/log")"; exit 1; }; }
ask() { echo "$1" >&"$in"; answers 1; }

if [[ $mode == --copy ]]; then
    ids=$(prompt 7 96)
    for round in 1 2; do
        for flags in "--window 1 --no-draft --no-repeats" "--window 8 --guesses always --no-draft" ""; do
            serve $flags
            ask "GEN 1 cache=0 $ids"
            ask "GEN 96 follow=$ids,$ids $ids,$ids"
            awk -v ms="${ms[0]}" -v f="${flags:-measured}" 'BEGIN { printf "%-42s %7.2f tokens/s\n", f, 96 / ms * 1000 }'
            quit
        done
    done
    exit 0
fi

if [[ $mode == --plain ]]; then
    ids=$(prompt 9 64)
    for round in 1 2 3; do
        for flags in "--window 1 --no-draft --no-repeats" ""; do
            serve --threads 1 $flags
            ask "GEN 1 cache=0 $ids"
            before=$(awk '{ print $14 + $15 }' "/proc/$pid/stat")
            ask "GEN ${PLAIN:-80} temperature=1 top_k=0 seed=$round stop_ids= $ids"
            awk -v ms="${ms[0]}" -v f="${flags:-measured}" -v n="${PLAIN:-80}" -v before="$before" \
                '{ printf "%-42s %7.2f tokens/s, %6.1f ms of processor time a token\n", f, n / ms * 1000, ($14 + $15 - before) * 10 / n }' "/proc/$pid/stat"
            quit
        done
    done
    exit 0
fi

a=$(prompt 1 60) b=$(prompt 2 45) c=$(prompt 3 52) d=$(prompt 4 38)
e=$(prompt 5 300)  # shorter conversations are not parked
requests=("temperature=0 stop_ids= $a" "temperature=0.9 top_k=0 seed=5 stop_ids= $b" "follow=$a stop_ids= $c"
    "temperature=1.2 seed=6 penalty_last_n=32 penalty_repeat=1.2 stop_ids= $d")
bad=0
verdict() { # NAME, what is, what should be
    if [[ $2 == "$3" ]]; then echo "same    $1"; else echo "DIFFERS $1"; echo "        $2"; echo "        $3"; bad=1; fi; }

serve --threads 1 --window 1 --no-draft --no-repeats
expected=()
for request in "${requests[@]}"; do
    ask "GEN $new cache=0 state_hash=1 $request"
    expected+=("${tokens[0]} ${hash[0]}")
done
ask "GEN $new cache=0 stop_ids= $e"
longer="GEN $new state_hash=1 stop_ids= $e,${tokens[0]%,}"
ask "${longer/state_hash/cache=0 state_hash}"; expected_longer="${tokens[0]} ${hash[0]}"
quit

ways=("--threads 1" "--threads 4")
for ((w = 1; w <= 8; w++)); do ways+=("--threads 2 --guesses always --window $w"); done
ways+=("--threads 4 --guesses always --window 8" "--threads 1 --guesses always --window 8 --no-draft"
    "--threads 1 --guesses always --window 8 --no-repeats" "--threads 2 --prompt-batch 32" "--threads 2 --no-draft --no-repeats")
for way in "${ways[@]}"; do
    serve $way
    for i in "${!requests[@]}"; do
        ask "GEN $new cache=0 state_hash=1 ${requests[i]}"
        verdict "$way, request $i" "${tokens[0]} ${hash[0]}" "${expected[i]}"
    done
    quit
done

for way in "--threads 2 --guesses always --window 4" "--threads 4"; do
    serve --parallel 4 $way
    for i in "${!requests[@]}"; do echo "GEN $new id=$((i + 1)) cache=0 state_hash=1 ${requests[i]}" >&"$in"; done
    answers 4
    for i in "${!requests[@]}"; do
        verdict "four at once, $way, request $i" "${tokens[$((i + 1))]} ${hash[$((i + 1))]}" "${expected[i]}"; done
    quit
done

serve --threads 2 --guesses always --conversation-cache-mib 4096 --conversation-cache-min-free-mib 0
ask "GEN $new stop_ids= $e"
ask "GEN $new stop_ids= $b"
ask "$longer"
verdict "parked and restored (${reused[0]} rows reused)" "${tokens[0]} ${hash[0]}" "$expected_longer"
((reused[0] > 0)) || { echo "DIFFERS nothing was reused"; bad=1; }
ask "GEN $new stop_ids= $e"
echo "SAVE $work/conversation" >&"$in"; read -r -u "$out" line; echo "        $line"
quit
serve --threads 4
echo "LOAD $work/conversation" >&"$in"; read -r -u "$out" line; echo "        $line"
ask "$longer"
verdict "saved and loaded (${reused[0]} rows reused)" "${tokens[0]} ${hash[0]}" "$expected_longer"
((reused[0] > 0)) || { echo "DIFFERS nothing was reused"; bad=1; }
quit
exit $bad
