#!/usr/bin/env bash
# From a fresh clone to an answer: installs what is missing from Debian's packages, builds, prepares a model and starts it.
#   ./setup.sh                                start what is installed; the small model of the project where nothing is
#   ./setup.sh --family nano --prompt TEXT    answer once and end
#   ./setup.sh --model FILE                   prepare a GGUF file that is there
#   ./setup.sh --check                        say what this PC makes of the models; installs and starts nothing
#   ./setup.sh --cpu                          build without CUDA and use no card
# All flags: --family NAME, --model SIZE|FILE, --gguf-dir DIR, --context N, --vision no, --prompt TEXT, --data-dir DIR, --yes,
# --check, --no-start, --cpu. Progress goes to standard error, an answer alone to standard output.
# Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a file was refused, 4 no such device or not enough memory, 130 interrupted.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() { echo "setup.sh: $1" >&2; exit 2; }

# Wrong flags are found before minutes of building; the program checks their values.
check="" cuda=()
words=("$@")
for ((i = 0; i < ${#words[@]}; i++)); do
    case ${words[i]} in
        -h | --help) sed -n '2,/^set/{/^#/s/^# \?//p}' setup.sh; exit 0 ;;
        --check) check=1 ;;
        --cpu) cuda=(-DPOLYSTRATA_CUDA=OFF) ;;
        --yes | --no-start) ;;
        --family | --model | --gguf-dir | --context | --vision | --prompt | --data-dir)
            ((i + 1 < ${#words[@]})) || usage "${words[i]} needs a value"
            ((i += 1)) ;;
        --family=* | --model=* | --gguf-dir=* | --context=* | --vision=* | --prompt=* | --data-dir=*) ;;
        *) usage "unknown argument '${words[i]}'; --help lists what there is" ;;
    esac
done

build() {
    # A new tree is built without the tests; one that test.sh made keeps them.
    local tests=()
    [[ -f build/CMakeCache.txt ]] || tests=(-DPOLYSTRATA_TESTS=OFF)
    cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DPOLYSTRATA_SERVER=ON "${tests[@]}" "${cuda[@]}" &&
        ninja -C build -j "$(tools/build_jobs.sh)" polystrata strata-poly
}
if [[ -z $check ]]; then
    tools/packages.sh build
    build >&2 || { echo "setup.sh: the build failed; its reason stands above" >&2; exit 1; }
elif [[ ! -x build/bin/polystrata ]]; then
    build >&2 || { echo "setup.sh: the program cannot be built yet: ./setup.sh --no-start installs what is missing" >&2; exit 1; }
fi

# Paths in the flags are the caller's.
program=$PWD/build/bin/polystrata
cd "$caller"
exec "$program" setup "$@"
