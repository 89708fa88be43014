#!/usr/bin/env bash
# A tour of muster on simulated GPUs. Starts a server on a free port, and removes all its files at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
muster=${MUSTER_BIN:-bin/muster}
[ -x "$muster" ] || { echo "demo: $muster is missing; run \`make build\` first" >&2; exit 1; }

folder=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
"$muster" dev --listen 127.0.0.1:0 --data-dir "$folder/data" >"$folder/out" 2>"$folder/log" &
server=$!
for _ in $(seq 100); do
    MUSTER_SERVER=$(grep -om1 'http://[0-9.:]*' "$folder/out" || true)
    [ -n "$MUSTER_SERVER" ] && break
    sleep 0.1
done
export MUSTER_SERVER

bold='' plain=''
[ -t 1 ] && bold=$'\033[1m' plain=$'\033[0m'
chapter() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
show() { printf '$ muster %s\n' "$*"; "$muster" "$@"; }

chapter "1. The cluster: two nodes with four simulated H100 each"
show gpus

chapter "2. A tenant with a quota of eight GPUs"
show tenant create --name vision --max-gpus 8 --priority medium

chapter "3. Four jobs of two GPUs fill the cluster"
for i in 1 2 3 4; do
    "$muster" submit --tenant vision --name "train-$i" --gpus 2 --priority 100 \
        --annotation muster.sim/runtime=20s -- python train.py
done
sleep 1
show ps

chapter "4. A fifth job waits, and \`why\` gives the reasons"
waiting=$("$muster" submit --tenant vision --name sweep --gpus 2 --priority 100 \
    --annotation muster.sim/runtime=1s -- python sweep.py)
sleep 1
show why "$waiting"

chapter "5. An infeasible job is refused at once, with a hint"
show submit --name huge --gpus 64 -- python train.py || true

chapter "6. An urgent job preempts only as many jobs as it needs"
urgent=$("$muster" submit --name urgent --gpus 4 --priority critical \
    --annotation muster.sim/runtime=2s -- python serve.py)
show wait "$urgent"
show ps --all

chapter "7. The victims were requeued; usage per tenant, and the audit log"
show usage
show audit

chapter "Done. \`make run\` starts a cluster that keeps running."
