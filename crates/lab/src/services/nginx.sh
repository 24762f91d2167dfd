# Starts nginx, with the limit that systemd gives to a service that asks for none.
limit_files_softly "$1" 1024
# It says why not itself, on standard error.
exec /usr/sbin/nginx
