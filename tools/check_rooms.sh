#!/usr/bin/env bash
# Guards the house's rule (docs/architecture.md): a room includes only itself and the rooms below it, and the engine's rooms
# include nothing but the standard library, the system and CUDA. Prints every include that breaks it; exit 1 if any does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

declare -A may=(
    [base]=""
    [gguf]="base quant"
    [quant]="base"
    [device]="base quant gguf"
    [cpu]="base quant gguf device"
    [cuda]="base quant gguf device cpu"
    [models]="base quant gguf device"
    [grammar]="base gguf"
    [engine]="base quant gguf grammar device cpu cuda models protocol"
    [protocol]="base"
    [text]="base gguf grammar"
    [synth]="base quant gguf"
    [setup]="base gguf grammar quant device models text"
    [vision]="base quant gguf device cpu cuda"
    [server]="base gguf grammar quant text protocol setup"
    [cli]="base gguf grammar quant device models text protocol setup server synth"
)
engine_rooms=" base gguf quant grammar device cpu cuda models engine protocol "
# A header of the standard library has no dot and no slash; these are the system's and the compiler's.
system='^(fcntl|unistd|signal|spawn|poll|pthread|sched|errno|time|immintrin|x86intrin|cpuid|numa|windows|cuda|cuda_runtime|cuda_runtime_api|cuda_fp16|cuda_bf16|mma|sys/[a-z]+|linux/[a-z]+|arpa/inet|cooperative_groups|cuda/[a-z_/]+)(\.h)?$'

bad=0
report() { echo "$1"; bad=1; }
for folder in src/*/; do
    room=$(basename "$folder")
    if [[ -z ${may[$room]+x} ]]; then report "$folder: a room that tools/check_rooms.sh does not know"; continue; fi
    while IFS=: read -r file line text; do
        if [[ $text =~ ^[[:space:]]*\#[[:space:]]*include[[:space:]]*\"([^\"]+)\" ]]; then
            other=${BASH_REMATCH[1]%%/*}
            [[ $other == "$room" || " ${may[$room]} " == *" $other "* ]] ||
                report "$file:$line: room $room may not include ${BASH_REMATCH[1]}"
        elif [[ $text =~ ^[[:space:]]*\#[[:space:]]*include[[:space:]]*\<([^\>]+)\> && $engine_rooms == *" $room "* ]]; then
            header=${BASH_REMATCH[1]}
            [[ $header != *[./]* || $header =~ $system ]] ||
                report "$file:$line: an engine room may not use <$header>"
        fi
    done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include' "$folder" --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' || true)
done
exit $bad
