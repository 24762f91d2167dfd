<?php
// A section of the shop, with what others bought, which a partner tells. Meanwhile the connection to the database stays open,
// as everywhere in this program: it is closed when the page ends.
$section = random_int(0, 49);
$db = new mysqli('localhost', 'shop', 'shop', 'shop');
$articles = $db->query("SELECT number, name, price FROM article WHERE section = $section ORDER BY number")->fetch_all(MYSQLI_ASSOC);
$bought = explode(' ', file_get_contents("http://partner/bought?section=$section"));
?>
<!doctype html>
<title>Section <?= $section ?></title>
<?php for ($number = 1; $number <= 7; $number++): ?>
<link rel="stylesheet" href="/css/<?= $number ?>.css">
<?php endfor ?>
<?php for ($number = 1; $number <= 4; $number++): ?>
<script src="/js/<?= $number ?>.js"></script>
<?php endfor ?>
<?php for ($number = 1; $number <= 8; $number++): ?>
<img src="/img/<?= $number ?>.png" alt="">
<?php endfor ?>
<p>Others bought the articles <?= implode(', ', $bought) ?>.</p>
<table>
<?php foreach ($articles as $article): ?>
<tr><td><?= $article['number'] ?></td><td><?= htmlspecialchars($article['name']) ?></td><td><?= $article['price'] ?></td>
<td><a href="/cart.php?add=<?= $article['number'] ?>">into the cart</a></td></tr>
<?php endforeach ?>
</table>
