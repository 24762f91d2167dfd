#!/usr/bin/env bash
# How long lists of many sessions take. What they must reach: 1000 sessions in less than 1 s once they are in the index.
#   bench/sessions.sh history|serve [SESSIONS...]       default 1000
# history: `webdyno history` the first time, when every recording is read, once they are in the index, and when one changed.
# serve: the list and a report as curl gets them from `webdyno serve`, and the server's memory.
# WEBDYNO: the program (default target/release/webdyno). RECORDING: the run directory that all sessions are copies of.
set -euo pipefail
cd "$(dirname "$0")/.."
command=${1:-}
case $command in
history) columns=('first time, s' 'indexed, s' 'one changed, s') ;;
serve) columns=('list, s' 'report, s' 'memory, MB') ;;
*)
  sed -n '/^#   /s/^# *//p' "$0" >&2
  exit 2
  ;;
esac
shift
[ $# -gt 0 ] || set -- 1000
webdyno=$(realpath "${WEBDYNO:-target/release/webdyno}")
[ -x "$webdyno" ] || { echo "$webdyno is missing: cargo build --release" >&2; exit 1; }
recording=${RECORDING:-crates/webdyno/tests/it/recordings/v0.1.0-tune}

dir=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null; rm -rf "$dir"' EXIT

complain() { echo "not all are listed" >&2; exit 1; }

# measure_history RUNS SESSIONS
measure_history() {
  seconds() {
    local began=$EPOCHREALTIME
    "$webdyno" history "$1" >"$dir/listed" 2>/dev/null
    awk -v began="$began" -v ended="$EPOCHREALTIME" 'BEGIN { printf "%.3f", ended - began }'
  }
  local first indexed
  first=$(seconds "$1")
  indexed=$(seconds "$1")
  [ "$(wc -l <"$dir/listed")" = $(($2 + 1)) ] || complain
  touch "$1/1/events.jsonl"
  measured=("$first" "$indexed" "$(seconds "$1")")
}

# measure_serve RUNS SESSIONS
measure_serve() {
  "$webdyno" serve "$1" >"$dir/url" 2>/dev/null &
  server=$!
  # The index is made first.
  until [ -s "$dir/url" ]; do sleep 0.1; done
  local list report url
  url=$(cat "$dir/url")
  seconds() { curl -sf -o "$dir/body" -w '%{time_total}' "$url$1"; }
  list=$(seconds api/sessions)
  [ "$(grep -o '"id":' "$dir/body" | wc -l)" = "$2" ] || complain
  report=$(seconds api/sessions/1)
  measured=("$list" "$report" "$(awk '$1 == "VmHWM:" { printf "%.0f", $2 / 1024 }' "/proc/$server/status")")
  kill "$server" && wait "$server" || true
  server=
  rm "$dir/url"
}

printf '%10s %14s %14s %14s\n' sessions "${columns[@]}"
for sessions in "$@"; do
  runs=$dir/runs-$sessions
  for number in $(seq "$sessions"); do
    mkdir -p "$runs/$number"
    cp "$recording/events.jsonl" "$runs/$number/"
  done
  "measure_$command" "$runs" "$sessions"
  printf '%10s %14s %14s %14s\n' "$sessions" "${measured[@]}"
done
