<?php
// One section of the shop.
$section = (int) ($_GET['section'] ?? 1);
?>
<!doctype html>
<title>Section <?= $section ?></title>
<ul>
<?php for ($number = 1; $number <= 20; $number++): ?>
    <li>Article <?= $section * 100 + $number ?></li>
<?php endfor ?>
</ul>
