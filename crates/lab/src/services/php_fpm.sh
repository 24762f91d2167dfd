# Starts PHP-FPM, with the limit that systemd gives to a service that asks for none.
log=/var/log/php8.2-fpm.log
limit_files_softly "$1" 1024
mkdir -p /run/php && chown www-data:www-data /run/php || exit 1
# A disk of the host's own may be mounted there.
[ ! -d /var/lib/php/sessions ] || chmod 1733 /var/lib/php/sessions
/usr/sbin/php-fpm8.2 --daemonize --fpm-config /etc/php/8.2/fpm/php-fpm.conf || fail
