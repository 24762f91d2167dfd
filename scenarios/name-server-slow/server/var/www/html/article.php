<?php
// An article, with how many of it are left; the warehouse knows that.
$number = (int) ($_GET['number'] ?? 1);
$left = strlen(file_get_contents("http://stock.warehouse.example/left.txt"));
?>
<!doctype html>
<title>Article <?= $number ?></title>
<h1>Article <?= $number ?></h1>
<p><?= $left ?> left.</p>
