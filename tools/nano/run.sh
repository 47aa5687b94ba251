#!/usr/bin/env bash
# The recipe on one GPU, in calls of at most ten minutes (README.md).
#   run.sh smoke            60 to 120 seconds: tests, compiled against plain attention, tiny training, export
#   run.sh train [MINUTES]  goes on until MINUTES (8.5) of this call are over; again until it says "done"
#   run.sh finish           held-out scores in PyTorch
# State lies in $NANO_FOLDER (/tmp/nano); what must outlive the machine goes to $OUT.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONUNBUFFERED=1 TORCHINDUCTOR_CACHE_DIR=/tmp/nano-inductor
python=${PYTHON:-python3}
folder=${NANO_FOLDER:-/tmp/nano}
out=${OUT:-/tmp/nano-out}
total=${NANO_MINUTES:-18}
mkdir -p "$folder" "$out"
[ -f "$folder/tokenizer.json" ] || cp nano/tokenizer.json "$folder/"
cp "$folder/tokenizer.json" "$out/"

# The weights in parts of 15 MiB: `cat weights.npz.* > weights.npz` in a folder with tokenizer.json is all that export, scoring
# and going on need.
bring_back() {
    rm -f "$out"/weights.npz.*
    split -b 15M -d "$folder/weights.npz" "$out/weights.npz."
    ls -l "$out"
}

case ${1:-} in
smoke)
    $python -c 'import torch; print(torch.__version__, torch.cuda.get_device_name())'
    $python -m nano.tests.data_test
    $python -m nano.tests.model_test
    $python -m nano.tests.gpu_test "$folder"
    ;;
train)
    $python -m nano.train --folder "$folder" --minutes "$total" --call-minutes "${2:-8.5}" \
        $(cat "$folder/flags" 2>/dev/null) ${NANO_FLAGS:-} 2>&1 |
        tee -a "$folder/log"
    cp "$folder/log" "$out/"
    bring_back
    ;;
finish)
    $python -m nano.evaluate score "$folder" "${2:-40}" 2>&1 | tee "$out/scores"
    cp "$folder/log" "$out/"
    bring_back
    ;;
*)
    sed -n '2,6p' "$0"
    exit 2
    ;;
esac
