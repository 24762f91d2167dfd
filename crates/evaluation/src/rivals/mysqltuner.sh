# Asks MySQLTuner, as it is installed. $1 and $2 are the host's memory and swap in MiB.
#
# Debian's 1.9.9 divides by innodb_buffer_pool_chunk_size, which is 0 in MariaDB from 10.11.12 on, and dies before it has
# said what to change. Its client is therefore one that leaves out this variable.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/client" <<'END'
#!/bin/bash
set -o pipefail
/usr/bin/mariadb "$@" | sed '/^innodb_buffer_pool_chunk_size\t0$/d'
END
chmod 700 "$folder/client"
mysqltuner --nocolor --skippassword --forcemem "$1" --forceswap "$2" --mysqlcmd "$folder/client" 2>&1
