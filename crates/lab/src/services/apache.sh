# Starts Apache as apache2ctl(8) does.
limit_files "$1" 8192
. /etc/apache2/envvars
log=$APACHE_LOG_DIR/error.log
for folder in "$APACHE_RUN_DIR/socks" "$APACHE_LOCK_DIR"; do
    mkdir -p "$folder" && chown "$APACHE_RUN_USER" "$folder" || exit 1
done
rm -f "$APACHE_PID_FILE" "$APACHE_RUN_DIR"/*ssl_scache*
said=$(mktemp)
if /usr/sbin/apache2 -k start >"$said" 2>&1; then
    # It has gone to the background before it knows whether it can run.
    while ! pid=$(cat "$APACHE_PID_FILE" 2>/dev/null); do
        # By its file: mod_perl gives the process another name.
        ls -l /proc/[0-9]*/exe 2>/dev/null | grep -q '/apache2$' || break
        sleep 0.02
    done
    if [ -n "$pid" ] && kill -0 "$pid"; then
        rm -f "$said"
        exit 0
    fi
fi
cat "$said" >&2
fail
