#!/usr/bin/env bash
# How long a list of a million URLs takes to load, and how much memory: the whole program from its start to the end of a
# short load, less the same load of one URL. What it must reach: under 1 s and 300 MB. Then trees of files: making one, and
# making a workload of it. One nginx worker answers; times and peaks are those of GNU time.
#   bench/lists.sh [LINES...]       default 1000000
# WEBDYNO: the program (default target/release/webdyno). PORT: default 18097.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- 1000000
port=${PORT:-18097}
for tool in nginx python3; do
  command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install nginx-light python3" >&2; exit 1; }
done
[ -x /usr/bin/time ] || { echo "GNU time is missing: apt-get install time" >&2; exit 1; }
webdyno=$(realpath "${WEBDYNO:-target/release/webdyno}")
[ -x "$webdyno" ] || { echo "$webdyno is missing: cargo build --release" >&2; exit 1; }

dir=$(mktemp -d)
nginx_pid=
trap '[ -n "$nginx_pid" ] && kill "$nginx_pid" 2>/dev/null && wait "$nginx_pid" 2>/dev/null; rm -rf "$dir"' EXIT
chmod 755 "$dir"
cat >"$dir/nginx.conf" <<CONF
daemon off; worker_processes 1; pid $dir/pid; error_log $dir/error.log;
events { worker_connections 2000; }
http {
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path $dir/t1; proxy_temp_path $dir/t2; fastcgi_temp_path $dir/t3; uwsgi_temp_path $dir/t4;
  scgi_temp_path $dir/t5;
  server { listen 127.0.0.1:$port; location / { return 200 "ok"; } }
}
CONF
nginx -e "$dir/error.log" -c "$dir/nginx.conf" &
nginx_pid=$!
for _ in $(seq 50); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done

# Elapsed seconds, those of its processors, and peak kB of a command; 3 is a load that was measured and judged.
measure() {
  local code=0
  /usr/bin/time -f '%e %U %S %M' -o "$dir/measured" "$@" >"$dir/told" 2>&1 || code=$?
  [ "$code" = 0 ] || [ "$code" = 3 ] || { cat "$dir/told" >&2; exit 1; }
  awk 'END { print $1, $2 + $3, $4 }' "$dir/measured"
}
run() { measure "$webdyno" run "$@" -n 1000 -q --out "$(mktemp -u -p "$dir")"; }

cd "$dir"
printf '%-44s %8s %8s %10s %12s\n' what seconds 'CPU s' 'peak kB' 'seconds more'
read -r base_s base_cpu base_kb < <(run "http://127.0.0.1:$port/")
printf '%-44s %8s %8s %10s\n' 'run, one URL' "$base_s" "$base_cpu" "$base_kb"
for lines in "$@"; do
  for kind in plain posts blanks weights; do
    python3 - "$lines" "$kind" "$port" >"$kind.urls" <<'PYTHON'
import sys
lines, kind, port = int(sys.argv[1]), sys.argv[2], sys.argv[3]
behind = {"plain": "", "posts": " POST name=webdyno&id={0}", "blanks": "&title=a page of the list", "weights": "#weight={0}.5"}[kind]
for line in range(lines):
    path = f"/shop/category-{line % 97}/item-{line:07}.html?id={line}&ref=list"
    sys.stdout.write(f"http://127.0.0.1:{port}{path}{behind.format(line)}\n")
PYTHON
    read -r seconds cpu kb < <(run --urls "$kind.urls")
    more=$(python3 -c "print(f'{$seconds - $base_s:.2f}')")
    printf '%-44s %8s %8s %10s %12s\n' "run, $lines URLs, $kind" "$seconds" "$cpu" "$kb" "$more"
  done
done
read -r seconds cpu kb < <(measure "$webdyno" workload make-tree tree --total 512M --mean-size 6k)
printf '%-44s %8s %8s %10s\n' 'make-tree, 512 MB of 6 kB' "$seconds" "$cpu" "$kb"
read -r seconds cpu kb < <(measure "$webdyno" workload make-tree text --total 64M --mean-size 6k --content text)
printf '%-44s %8s %8s %10s\n' 'make-tree, 64 MB of text' "$seconds" "$cpu" "$kb"
read -r seconds cpu kb < <(measure "$webdyno" workload make-tree many --total 100M --mean-size 1k)
printf '%-44s %8s %8s %10s\n' 'make-tree, 102400 files of 1 kB' "$seconds" "$cpu" "$kb"
read -r seconds cpu kb < <(measure "$webdyno" workload from-tree many --url "http://127.0.0.1:$port" --popularity zipf=0.8 --size-distribution)
printf '%-44s %8s %8s %10s\n' 'from-tree, 102400 files' "$seconds" "$cpu" "$kb"
