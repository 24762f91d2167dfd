<?php
// Makes the site with WordPress's own installer: its tables, and 40 posts with comments.
$_SERVER += ['HTTP_HOST' => 'server', 'SERVER_PROTOCOL' => 'HTTP/1.1', 'REQUEST_METHOD' => 'GET', 'REQUEST_URI' => '/'];
define('WP_INSTALLING', true);
require '/opt/wordpress/usr/share/wordpress/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
// Nobody gets a letter.
function wp_new_blog_notification() {}
wp_install('The village paper', 'editor', 'editor@example.org', true, '', 'editor');
update_option('siteurl', 'http://server');
update_option('home', 'http://server');
$words = explode(' ', 'the mill and bridge over a river were closed today because of water that rose higher than in all years '
    . 'before so people walk along old road until evening when boats take them home');
mt_srand(1);
for ($number = 1; $number <= 40; $number++) {
    $text = '';
    for ($paragraph = 0; $paragraph < 8; $paragraph++) {
        $sentence = implode(' ', array_map(fn () => $words[mt_rand(0, count($words) - 1)], range(1, 60)));
        $text .= "<!-- wp:paragraph --><p>$sentence.</p><!-- /wp:paragraph -->\n";
    }
    $post = wp_insert_post([
        'import_id' => 1000 + $number, 'post_title' => "News $number", 'post_content' => $text,
        'post_status' => 'publish', 'post_author' => 1,
    ], true);
    is_wp_error($post) && exit($post->get_error_message());
    for ($comment = 1; $comment <= 5; $comment++) {
        wp_insert_comment(['comment_post_ID' => $post, 'comment_author' => "Reader $comment", 'comment_content' => "It was so in year $comment, too."]);
    }
}
echo "installed\n";
