#!/usr/bin/env bash
# From what training brought back to models/strata-nano.gguf, on this machine.
#   ship.sh FOLDER [EACH]   FOLDER: weights.npz or its parts, tokenizer.json. EACH: held-out prompts of a skill (100)
# Builds nothing: build/bin needs nano_quantise, polystrata and strata-poly.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(cd "$1" && pwd)
each=${2:-100}
python=${PYTHON:-/usr/bin/python3}
bin=${BIN:-$root/build/bin}
work=${NANO_WORK:-/tmp/nano-ship}
mkdir -p "$work" "$root/models"

if ls "$folder"/weights.npz.?? >/dev/null 2>&1; then cat "$folder"/weights.npz.?? >"$work/weights.npz"; else cp "$folder/weights.npz" "$work/"; fi
cp "$folder/tokenizer.json" "$work/"
cd "$root/tools"
$python -m nano.evaluate export "$work" "$work/strata-nano-f32.gguf" f32
# The first rule whose part the name contains counts. Embeddings, attention and the shared expert keep eight bits, the delta net's
# matrices six; routers, decays, conv and norms stay floats.
"$bin/nano_quantise" "$work/strata-nano-f32.gguf" "$root/models/strata-nano.gguf" \
    ffn_gate_exps="${GATE_UP:-Q4_K}" ffn_up_exps="${GATE_UP:-Q5_K}" ffn_down_exps="${DOWN:-Q5_1}" shexp=Q8_0 \
    attn_output=Q8_0 output.weight=Q6_K token_embd=Q8_0 attn_qkv=Q6_K attn_gate=Q6_K ssm_out=Q6_K \
    attn_q.=Q8_0 attn_k.=Q8_0 attn_v.=Q8_0 eh_proj=Q8_0
ls -l "$root/models/strata-nano.gguf"
$python -m nano.evaluate prompts "$work/prompts.jsonl" "$each"
for model in "$root/models/strata-nano.gguf" "$work/strata-nano-f32.gguf"; do
    echo "== $model"
    "$bin/polystrata" eval --model "$model" --prompts "$work/prompts.jsonl" --json >"$work/$(basename "$model").json"
    $python -m nano.evaluate show "$work/$(basename "$model").json"
done
