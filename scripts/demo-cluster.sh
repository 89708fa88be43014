#!/usr/bin/env bash
# A tour of a cluster of real machines, in network namespaces of this one: three nodes, a gang across them, and what happens
# when an agent, the leader and a network fail. Needs root for the namespaces and PostgreSQL for the standby; without them
# the chapters about the network and the standby are left out. Removes all its files at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
muster=$(realpath "${MUSTER_BIN:-bin/muster}")
unset MUSTER_BIN
[ -x "$muster" ] || { echo "demo-cluster: $muster is missing; run \`make build\` first" >&2; exit 1; }

# In namespaces of its own nothing is left behind, whatever happens. The shell there reaps orphans.
if [ "$(id -u)" = 0 ] && command -v ip >/dev/null && [ -z "${IN_NAMESPACES:-}" ]; then
    IN_NAMESPACES=1 MUSTER_BIN=$muster exec unshare --net --mount --pid --fork --kill-child --mount-proc \
        bash -c '"$0"; exit $?' "$PWD/scripts/demo-cluster.sh"
fi

folder=$(mktemp -d)
chmod 711 "$folder"
cleanup() {
    # shellcheck disable=SC2046
    kill $(jobs -p) 2>/dev/null || true
    wait 2>/dev/null || true
    [ -d "$folder/postgres" ] && as_nobody pg_ctl -D "$folder/postgres" -m immediate stop >/dev/null 2>&1
    rm -rf "$folder"
}
trap cleanup EXIT

bold='' plain=''
[ -t 1 ] && bold=$'\033[1m' plain=$'\033[0m'
chapter() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
say() { printf '# %s\n' "$*"; }
show() { printf '$ muster %s\n' "$*"; "$muster" "$@"; }
# until_true SECONDS WHAT COMMAND...: waits until the command succeeds.
until_true() {
    local seconds=$1 what=$2 begin=$SECONDS
    shift 2
    until "$@" 2>/dev/null; do
        [ $((SECONDS - begin)) -lt "$seconds" ] || { echo "demo-cluster: $what: not within $seconds s" >&2; tail -n 5 "$folder"/*.log >&2; exit 1; }
        sleep 0.1
    done
}
as_nobody() { if [ "$(id -u)" = 0 ]; then (cd / && setpriv --reuid 65534 --regid 65534 --clear-groups "$@"); else "$@"; fi; }
node_is() { "$muster" node ls -o csv | grep -q "^$1,$2,"; }
phase_is() { "$muster" show "$1" -o json | grep -q "\"phase\": \"$2\""; }
ready() { curl -fs --noproxy '*' "$1/readyz" >/dev/null; }

# ---- network
server_address=127.0.0.1
if [ -n "${IN_NAMESPACES:-}" ]; then
    server_address=10.77.0.1
    mount --make-rprivate / && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns
    ip link set lo up && ip address add $server_address/32 dev lo
fi
make_network() { # NODE NUMBER
    ip netns add "$1" && ip link add "$1" type veth peer name uplink netns "$1"
    ip address add "10.77.$2.1/30" dev "$1" && ip link set "$1" up
    ip -n "$1" link set lo up && ip -n "$1" address add "10.77.$2.2/30" dev uplink
    ip -n "$1" link set uplink up && ip -n "$1" route add default via "10.77.$2.1"
}

# ---- database and servers
database=()
if PATH="$PATH:$(echo /usr/lib/postgresql/*/bin)" command -v initdb >/dev/null; then
    PATH="$PATH:$(echo /usr/lib/postgresql/*/bin)"
    mkdir "$folder/postgres" && { [ "$(id -u)" != 0 ] || chown 65534 "$folder/postgres"; }
    as_nobody initdb -D "$folder/postgres" -U muster -A trust -N >/dev/null
    as_nobody pg_ctl -D "$folder/postgres" -l "$folder/postgres/server.out" -w \
        -o "-k $folder/postgres -c listen_addresses=''" start >/dev/null
    database=(--database "postgres://muster@/postgres?host=$folder/postgres")
fi
cat >"$folder/muster.yaml" <<YAML
# Short times, so that the tour is short. The defaults are 5 s, 30 s, 5 min and 30 s.
nodes: {suspect_after: 2s, suspect_margin: 500ms, unreachable_after: 4s, self_fence: 12s, fence_margin: 1s}
scheduler: {stop_grace: 2s, launch_backoff: 500ms}
agent: {heartbeat_interval_ms: 400}
YAML
declare -A pid
start_server() { # NAME HTTP-PORT LINK-PORT OTHER-LINK-PORT
    MUSTER_AGENT_LINK__LISTEN=0.0.0.0:$3 MUSTER_AGENT_LINK__ADVERTISE=$server_address:$3,$server_address:$4 \
        "$muster" serve --config "$folder/muster.yaml" --listen "127.0.0.1:$2" --data-dir "$folder/$1" \
        "${database[@]}" >>"$folder/$1.out" 2>>"$folder/$1.log" &
    pid[$1]=$!
}
start_agent() { # NODE [WORDS...]
    # `ip netns exec` would hide the cgroups.
    local in_network=()
    [ -z "${IN_NAMESPACES:-}" ] || in_network=(nsenter --net="/run/netns/$1")
    "${in_network[@]}" "$muster" agent --config "$folder/muster.yaml" --node "$1" --gpus 2 --data-dir "$folder/$1" "${@:2}" \
        >/dev/null 2>>"$folder/$1.log" &
    pid[$1]=$!
}
kill_hard() { kill -9 "${pid[$1]}"; wait "${pid[$1]}" 2>/dev/null || true; }

export MUSTER_SERVER=http://127.0.0.1:18080
standby=http://127.0.0.1:18081
chapter "1. A leader, a standby, and three machines that join with a token each"
start_server leader 18080 15052 15053
until_true 30 "a leader" ready $MUSTER_SERVER
if [ "${#database[@]}" -gt 0 ]; then
    mkdir -p "$folder/standby" && cp -a "$folder/leader/tls" "$folder/standby/"
    start_server standby 18081 15053 15052
fi
number=0
for node in gpu01 gpu02 gpu03; do
    number=$((number + 1))
    [ -z "${IN_NAMESPACES:-}" ] || make_network $node $number
    start_agent $node --join "$("$muster" node token 2>/dev/null)"
    until_true 30 "$node joins" node_is $node Ready
done
show node ls

chapter "2. A gang over three machines: all ranks start together, and each knows the others"
gang=$("$muster" submit --name gang --tasks 3 --gpus 2 -- sh -c \
    'echo "rank $MUSTER_RANK of $MUSTER_GANG_SIZE, node $MUSTER_NODE_RANK of $MUSTER_NODES, master $MUSTER_MASTER_ADDRESS"')
show wait "$gang"
show logs "$gang" --rank all

chapter "3. An agent is killed: its job runs on, and the next agent adopts it"
job=$("$muster" submit --name train --gpus 1 --on-node-lost requeue -- sh -c 'for i in $(seq 60); do echo step $i; sleep 1; done')
until_true 30 "$job runs" phase_is "$job" Running
node=$("$muster" show "$job" -o json | grep -o '"gpu0[1-3]"' | head -1 | tr -d '"')
kill_hard "$node"
until_true 30 "$node is suspect" node_is "$node" Suspect
show node ls
start_agent "$node"
until_true 30 "$node is back" node_is "$node" Ready
show ps
say "still attempt 1 of $job"

if [ "${#database[@]}" -gt 0 ]; then
    chapter "4. The leader is killed: the standby takes over, agents follow, jobs run on"
    kill_hard leader
    begin=$(date +%s%N)
    until_true 60 "the standby leads" ready $standby
    MUSTER_SERVER=$standby
    after=$("$muster" submit --name after --gpus 1 -- echo "started under the new leader")
    show wait "$after"
    say "$((($(date +%s%N) - begin) / 1000000)) ms from the death of the leader to the end of a new job"
    show logs "$after"
    show ps
    start_server leader 18080 15052 15053
else
    chapter "4. (left out: a standby needs PostgreSQL)"
fi

if [ -n "${IN_NAMESPACES:-}" ]; then
    chapter "5. The network of $node fails: its job ends itself, and starts elsewhere once that is proven"
    ip link set "$node" down
    until_true 30 "$node is unreachable" node_is "$node" Unreachable
    show why "$job"
    until_true 60 "$job has a second attempt" sh -c "'$muster' show $job -o json | grep -q '\"attempts\": 2'"
    until_true 30 "$job runs" phase_is "$job" Running
    show ps
    ip link set "$node" up
    until_true 30 "$node is back" node_is "$node" Ready
else
    chapter "5. (left out: cutting a network needs root)"
fi

chapter "6. A machine is drained: running jobs finish, new ones go elsewhere"
node=$("$muster" show "$job" -o json | grep -o '"gpu0[1-3]"' | tail -1 | tr -d '"')
show node drain "$node" --why "new fans"
show node ls
show cancel "$job" --wait
show node undrain "$node"

chapter "7. Who used what"
show usage
chapter "Done. docs/nodes.md says how to join your machines."
