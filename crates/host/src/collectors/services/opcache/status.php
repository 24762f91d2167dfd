<?php
// Tells about OPcache in lines `name value`. Changes nothing.
header('Content-Type: text/plain');
$status = function_exists('opcache_get_status') ? @opcache_get_status(false) : false;
$error = error_get_last();
$restricted = $error && strpos($error['message'], 'restrict') !== false;
echo "webdyno.loaded ", (int) extension_loaded('Zend OPcache'), "\n";
echo "webdyno.callable ", (int) function_exists('opcache_get_status'), "\n";
echo "webdyno.restricted ", (int) $restricted, "\n";
foreach ($status ? $status : array() as $name => $value) {
    foreach (is_array($value) ? $value : array('' => $value) as $part => $number) {
        if (is_scalar($number)) {
            echo $part === '' ? $name : "$name.$part", ' ', 0 + $number, "\n";
        }
    }
}
echo "webdyno.end 1\n";
