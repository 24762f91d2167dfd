<?php
// An article, with how many of it are left; the warehouse knows that.
$number = (int) ($_GET['number'] ?? 1);
$left = (int) file_get_contents("http://warehouse/stock?number=$number");
?>
<!doctype html>
<title>Article <?= $number ?></title>
<h1>Article <?= $number ?></h1>
<p><?= $left ?> left.</p>
