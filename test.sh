#!/usr/bin/env bash
# Builds and runs every test that this machine can run; the last lines are ctest's own.
#   ./test.sh                            release build in build/, the engine alone in build-engine/, and where there
#                                        is a clang++ the fuzzers in build-fuzz/, which run for seconds
#   ./test.sh --sanitize address|thread  under that sanitizer, in build-asan/ or build-tsan/
#   ./test.sh --cpu                      without CUDA, even where nvcc is found
# Exit codes: 0 all passed, 1 a test or the build failed, 2 wrong usage.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

sanitize="" cuda=()
while (($#)); do
    case $1 in
        --sanitize)
            case ${2:-} in
                address | thread) sanitize=$2 ;;
                *) echo "test.sh: --sanitize takes address or thread" >&2; exit 2 ;;
            esac
            shift 2 ;;
        --cpu) cuda=(-DPOLYSTRATA_CUDA=OFF); shift ;;
        -h | --help) sed -n '2,/^set/{/^#/s/^# \?//p}' "$0"; exit 0 ;;
        *) echo "test.sh: unknown argument '$1'; --help lists what there is" >&2; exit 2 ;;
    esac
done

tools/packages.sh test
jobs=$(tools/build_jobs.sh)

case $sanitize in
    address) tree=build-asan; cuda=(-DPOLYSTRATA_CUDA=OFF) ;;
    thread) tree=build-tsan; cuda=(-DPOLYSTRATA_CUDA=OFF) ;;
    *) tree=build ;;
esac
cmake -S . -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPOLYSTRATA_SERVER=ON -DPOLYSTRATA_TESTS=ON \
    -DPOLYSTRATA_SANITIZE="$sanitize" "${cuda[@]}"
ninja -C "$tree" -j "$jobs"

if [[ -z $sanitize ]]; then
    # The engine must build with a compiler and CMake alone. With ccache this finds the objects of the first build.
    cmake -S . -B build-engine -G Ninja -DCMAKE_BUILD_TYPE=Release -DPOLYSTRATA_SERVER=OFF -DPOLYSTRATA_TESTS=OFF \
        -DPOLYSTRATA_CUDA=OFF
    ninja -C build-engine -j "$jobs"

    # The test fuzz.short runs them. A clang without its run-time libraries cannot build them.
    empty_fuzzer='#include <string>
        extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
    if clang++ -x c++ -fsanitize=fuzzer,address -o /dev/null - <<<"$empty_fuzzer" 2>/dev/null; then
        CXX=clang++ CC=clang cmake -S . -B build-fuzz -G Ninja -DCMAKE_BUILD_TYPE=Release -DPOLYSTRATA_FUZZ=ON \
            -DPOLYSTRATA_SANITIZE=address -DPOLYSTRATA_TESTS=OFF -DPOLYSTRATA_CUDA=OFF
        ninja -C build-fuzz -j "$jobs" fuzz_gguf fuzz_tokenizer fuzz_jinja fuzz_parser fuzz_schema
    fi
fi

ctest --test-dir "$tree" --output-on-failure -j "$jobs" || exit 1
