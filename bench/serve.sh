#!/usr/bin/env bash
# How long `webdyno serve` takes to list many sessions, once they are in the index: the list that the page reads, as curl
# gets it. What it must reach: 1000 sessions in less than 1 s. The sessions are copies of one recording.
#   bench/serve.sh [SESSIONS...]       default 1000
# WEBDYNO: the program (default target/release/webdyno). RECORDING: the run directory that is copied.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- 1000
webdyno=$(realpath "${WEBDYNO:-target/release/webdyno}")
[ -x "$webdyno" ] || { echo "$webdyno is missing: cargo build --release" >&2; exit 1; }
recording=${RECORDING:-crates/webdyno/tests/it/recordings/v0.1.0-tune}

dir=$(mktemp -d)
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; rm -rf "$dir"' EXIT
printf '%10s %14s %14s %14s\n' sessions 'list, s' 'report, s' 'memory, MB'
for sessions in "$@"; do
  runs=$dir/runs-$sessions
  for number in $(seq "$sessions"); do
    mkdir -p "$runs/$number"
    cp "$recording/events.jsonl" "$runs/$number/"
  done
  "$webdyno" serve "$runs" >"$dir/url" 2>/dev/null &
  server=$!
  # The index is made first.
  until [ -s "$dir/url" ]; do sleep 0.1; done
  url=$(cat "$dir/url")
  seconds() { curl -sf -o "$dir/body" -w '%{time_total}' "$url$1"; }
  list=$(seconds api/sessions)
  [ "$(grep -o '"id":' "$dir/body" | wc -l)" = "$sessions" ] || { echo "not all are listed" >&2; exit 1; }
  report=$(seconds api/sessions/1)
  memory=$(awk '$1 == "VmHWM:" { printf "%.0f", $2 / 1024 }' "/proc/$server/status")
  printf '%10s %14s %14s %14s\n' "$sessions" "$list" "$report" "$memory"
  kill "$server" && wait "$server" || true
  server=
  rm "$dir/url"
done
