<?php
/*
Plugin Name: Weather
Description: Today's weather at the foot of each page, from a service outside that takes 400 ms to say it.
*/
add_action('wp_footer', function () {
    $weather = wp_remote_get('http://weather/today', ['timeout' => 5]);
    if (is_wp_error($weather)) {
        error_log('no weather: ' . $weather->get_error_message());
        return;
    }
    echo '<p>', esc_html(wp_remote_retrieve_body($weather)), '</p>';
});
