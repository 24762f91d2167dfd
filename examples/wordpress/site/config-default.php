<?php
// Where Debian's wp-config.php looks for what differs from site to site: /etc/wordpress/config-default.php.
define('DB_NAME', 'wordpress');
define('DB_USER', 'wordpress');
define('DB_PASSWORD', 'wordpress');
define('WP_CONTENT_DIR', '/var/lib/wordpress/wp-content');
// As sites with visitors have it: cron(8) calls wp-cron.php, not a visitor's page.
define('DISABLE_WP_CRON', true);
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $name) {
    define("{$name}_KEY", "{$name} key of the lab");
    define("{$name}_SALT", "{$name} salt of the lab");
}
