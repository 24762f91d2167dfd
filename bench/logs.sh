#!/usr/bin/env bash
# Access logs: what `webdyno logs` counts beside awk and GoAccess on the same generated log, how fast and in how much memory; then the
# miss-ratio curve against an exact LRU, and the memory of as many clients and URLs as requests.
#   bench/logs.sh [LINES] [ROUNDS]       default 3000000 5
# The log: combined format, 100 requests a second, 200,000 URLs and 50,000 clients by Zipf (crates/logs/examples/logs.rs); on a tmpfs where
# there is room. Times and peaks are those of GNU time; of the rounds the median. Counts must be equal: else exit 1.
# WEBDYNO: the program (default target/release/webdyno); EXAMPLE: cargo build --release -p webdyno-logs --example logs.
# CURVE, DISTINCT: references (10000000) and different clients (100000000).
set -euo pipefail
cd "$(dirname "$0")/.."
lines=${1:-3000000} rounds=${2:-5}
webdyno=${WEBDYNO:-target/release/webdyno} example=${EXAMPLE:-target/release/examples/logs}
for tool in mawk wc jq; do command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install mawk jq" >&2; exit 1; }; done
[ -x /usr/bin/time ] || { echo "GNU time is missing: apt-get install time" >&2; exit 1; }
[ -x "$webdyno" ] && [ -x "$example" ] || { echo "build $webdyno and $example first" >&2; exit 1; }

dir=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)")
trap 'rm -rf "$dir"' EXIT
"$example" generate "$lines" >"$dir/access.log"
size=$(stat -c %s "$dir/access.log")

# measure NAME COMMAND...: median of the rounds.
measure() {
  local name=$1; shift
  for _ in $(seq "$rounds"); do /usr/bin/time -a -o "$dir/times" -f '%e %U %S %M' "$@" >"$dir/out" 2>/dev/null; done
  sort -n "$dir/times" | awk -v name="$name" -v size="$size" '{ e[NR] = $1; c[NR] = $2 + $3; m[NR] = $4 }
    END { at = int((NR + 1) / 2); t = e[at] > 0 ? e[at] : 0.01
      printf "%-34s %7.2f s %7.2f CPU s %7.3f GB/s %6d MB\n", name, t, c[at], size / t / 1e9, m[at] / 1000 }'
  rm -f "$dir/times"
}
echo "$lines lines, $size bytes; $rounds rounds; load average $(cut -d' ' -f1-3 /proc/loadavg)"
measure "wc -l" wc -l "$dir/access.log"
measure "mawk, requests by status" mawk '{ n[$9]++ } END { for (s in n) print s, n[s] }' "$dir/access.log"
measure "webdyno logs, 1 thread" taskset -c 1 "$webdyno" logs --threads 1 "$dir/access.log"
measure "webdyno logs, 2 threads" "$webdyno" logs --threads 2 "$dir/access.log"
"$webdyno" logs "$dir/access.log" --json "$dir/report.json" >/dev/null
if command -v goaccess >/dev/null; then
  goaccess=(goaccess "$dir/access.log" --log-format=COMBINED --no-global-config -o "$dir/goaccess.json" --no-progress)
  rounds=1 measure "GoAccess" "${goaccess[@]}"
fi

echo "counts: webdyno, awk, GoAccess"
wrong=0
row() {
  local mark=
  [ "$2" = "$3" ] || { mark="  <- differ"; wrong=1; }
  printf '%-34s %12s %12s %12s%s\n' "$1" "$2" "$3" "${4:-}" "$mark"
}
ours() { jq -r "$1" "$dir/report.json"; }
theirs() { [ -f "$dir/goaccess.json" ] && jq -r "$1" "$dir/goaccess.json" || true; }
mawk -F'"' '{ n++; split($3, s, " "); by[s[1]]++; bytes += s[2]; split($1, c, " "); if (!(c[1] in client)) { client[c[1]]; clients++ }
  split($2, r, " "); sub(/\?.*/, "", r[2]); if (!(r[2] in url)) { url[r[2]]; urls++ }; second[c[4]]++ }
  END { for (at in second) if (second[at] > peak) peak = second[at]; printf "%d %.0f %d %d %d %d %d %d\n", n, bytes, by[200], by[304], by[404], clients, urls, peak }' \
  "$dir/access.log" >"$dir/awk"
read -r n bytes ok notmod missing clients urls peak <"$dir/awk"
row requests "$(ours .requests)" "$n" "$(theirs .general.total_requests)"
row bytes "$(ours .bytes)" "$bytes" "$(theirs .general.bandwidth)"
row "status 200" "$(ours '.statuses[] | select(.name == "200").requests')" "$ok"
row "status 304" "$(ours '.statuses[] | select(.name == "304").requests')" "$notmod"
row "status 404" "$(ours '.statuses[] | select(.name == "404").requests')" "$missing"
row "busiest second" "$(ours .rates.peak_second.rate)" "$peak"
row addresses "$(ours .clients_distinct.count)" "$clients"
printf '%-34s %12s %12s  (exact: %s)\n' URLs "$(ours .urls_distinct.count)" "$urls" "$(ours .urls_distinct.exact)"

"$example" curve "${CURVE:-10000000}" 1000000 0.9
"$example" curve "${CURVE:-10000000}" 200000 0.7
"$example" distinct "${DISTINCT:-100000000}"
exit "$wrong"
