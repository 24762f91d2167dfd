<?php
// The report of the year: all orders, by day.
$orders = [];
for ($order = 0; $order < 3000000; $order++) {
    $orders[] = $order * 7 % 1013;
}
$days = array_fill(0, 365, 0);
foreach ($orders as $order => $amount) {
    $days[$order % 365] += $amount;
}
printf("%d orders, best day %d\n", count($orders), max($days));
