#!/usr/bin/env bash
# How long `webdyno history` takes for many sessions: the first time, when every recording is read, and once they are in the index.
# What it must reach: 1000 sessions listed in less than 1 s once indexed. The sessions are copies of one recording.
#   bench/history.sh [SESSIONS...]       default 1000
# WEBDYNO: the program (default target/release/webdyno). RECORDING: the run directory that is copied.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- 1000
webdyno=$(realpath "${WEBDYNO:-target/release/webdyno}")
[ -x "$webdyno" ] || { echo "$webdyno is missing: cargo build --release" >&2; exit 1; }
recording=${RECORDING:-crates/webdyno/tests/it/recordings/v0.1.0-tune}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
seconds() {
  local began=$EPOCHREALTIME
  "$webdyno" history "$1" >"$dir/listed" 2>/dev/null
  awk -v began="$began" -v ended="$EPOCHREALTIME" 'BEGIN { printf "%.3f", ended - began }'
}
printf '%10s %14s %14s %14s\n' sessions 'first time, s' 'indexed, s' 'one changed, s'
for sessions in "$@"; do
  runs=$dir/runs-$sessions
  for number in $(seq "$sessions"); do
    mkdir -p "$runs/$number"
    cp "$recording/events.jsonl" "$runs/$number/"
  done
  first=$(seconds "$runs")
  indexed=$(seconds "$runs")
  [ "$(wc -l <"$dir/listed")" = $((sessions + 1)) ] || { echo "not all are listed" >&2; exit 1; }
  touch "$runs/1/events.jsonl"
  printf '%10s %14s %14s %14s\n' "$sessions" "$first" "$indexed" "$(seconds "$runs")"
done
