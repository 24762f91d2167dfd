#!/usr/bin/env bash
# What webdyno, wrk, ab and oha say of a server that knows what it did (crates/load/examples/reference), in interleaved
# rounds: a freezing server, scripted distributions, requests that are never answered, pacing, low rates, Little's law.
#   bench/accuracy.sh [--write] [--realtime] [ROUNDS]       default 3 rounds of about 100 s each
# Prints tables in Markdown; --write puts them into docs/accuracy.md, between its two marks, too. --realtime (as root):
# where others compute meanwhile, server and clients run before them.
# WEBDYNO, REFERENCE: the programs (default below target/release). OHA: oha, if it is not in the path; OHA=no leaves it
# out. Where it is missing it is built once, below target/bench-tools, which takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
export WEBDYNO=${WEBDYNO:-$target/release/webdyno} REFERENCE=${REFERENCE:-$target/release/examples/reference}
for tool in python3 taskset; do
  command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install python3 util-linux" >&2; exit 1; }
done
[ -x "$WEBDYNO" ] || { echo "$WEBDYNO is missing: cargo build --release" >&2; exit 1; }
[ -x "$REFERENCE" ] ||
  { echo "$REFERENCE is missing: cargo build --release -p webdyno-load --example reference" >&2; exit 1; }
[ "$(nproc)" -ge 2 ] || { echo "two cores are needed, one for the server and one for the client" >&2; exit 1; }

tools=$target/bench-tools
OHA=${OHA:-$(command -v oha || echo "$tools/bin/oha")}
if [ "$OHA" = no ]; then
  OHA=
elif [ ! -x "$OHA" ]; then
  echo "building oha below $tools, once (OHA=no leaves it out)" >&2
  CARGO_TARGET_DIR=$tools/build timeout 1200 cargo install oha --locked --quiet --root "$tools" >&2 ||
    { echo "oha could not be had: it is left out" >&2; OHA=; }
fi
export OHA
exec python3 bench/accuracy.py "$@"
