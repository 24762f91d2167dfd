<?php
// The month: who is on duty, by a sum over all days.
$cpu = getrusage();
$begin = $cpu['ru_utime.tv_sec'] * 1e6 + $cpu['ru_utime.tv_usec'];
do {
    for ($i = 0; $i < 2000; $i++) {
        $sum = md5((string) $i);
    }
    $cpu = getrusage();
} while ($cpu['ru_utime.tv_sec'] * 1e6 + $cpu['ru_utime.tv_usec'] < $begin + 12000);
echo "<p>$sum</p>";
