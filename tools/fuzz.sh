#!/usr/bin/env bash
# Runs the fuzzers of a tree that has them (tests/fuzz/CMakeLists.txt says how to build one), from their seeds.
#   tools/fuzz.sh [--tree build-fuzz] [--seconds 5] [NAME...]
# Exit codes: 0 nothing found, 1 something was found (libFuzzer says what and where it put the input), 77 no fuzzers are built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tree=build-fuzz seconds=5 names=()
while (($#)); do
    case $1 in
        --tree) tree=$2; shift 2 ;;
        --seconds) seconds=$2; shift 2 ;;
        *) names+=("$1"); shift ;;
    esac
done
((${#names[@]})) || names=(gguf tokenizer jinja parser schema)
tree=$(realpath -m "$tree") seeds=$(realpath tests/fuzz/seeds) data=$(realpath tests/data)
[[ -x $tree/bin/fuzz_${names[0]} ]] || { echo "no fuzzers in $tree"; exit 77; }
declare -A most=([gguf]=8192 [tokenizer]=1024 [jinja]=4096 [parser]=2048 [schema]=2048)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$tree"
for name in "${names[@]}"; do
    corpus=$seeds/$name
    [[ $name == gguf ]] && corpus=$data/gguf
    echo "== $name, $seconds s"
    mkdir "$scratch/$name"
    # Bounds are generous: machines of continuous integration stand still now and then.
    "bin/fuzz_$name" -max_total_time="$seconds" -max_len="${most[$name]}" -timeout=60 -rss_limit_mb=3000 -verbosity=0 \
        -print_final_stats=1 "$scratch/$name" "$corpus" 2>&1 | grep -vE '^(INFO|stat::(new_units|average|slowest)|\s+NEW_FUNC)' || exit 1
done
