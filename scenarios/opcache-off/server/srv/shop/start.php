<?php
// The start page. The framework wants every part of the shop to be there, whatever page is asked for.
spl_autoload_register(fn ($class) => require __DIR__ . '/lib/' . substr($class, strlen('Shop\\')) . '.php');
$parts = [];
for ($number = 1; $number <= 120; $number++) {
    $class = "Shop\\Part$number";
    $parts[] = new $class();
}
$order = ['country' => 'de', 'lines' => [['name' => 'Shoes', 'price' => 59.9, 'count' => 1]]];
$done = $parts[array_rand($parts)]->step1($order);
?>
<!doctype html>
<title>The shop</title>
<p><?= count($parts) ?> parts, <?= number_format($done['total'], 2) ?> in your cart.</p>
