<?php
// One section of the shop: its articles.
$section = random_int(0, 49);
$db = new mysqli('localhost', 'shop', 'shop', 'shop');
$articles = $db->query("SELECT number, name, price FROM article WHERE section = $section ORDER BY number LIMIT 20");
?>
<!doctype html>
<title>Section <?= $section ?></title>
<ul>
<?php foreach ($articles as $article): ?>
    <li><?= htmlspecialchars($article['name']) ?>: <?= $article['price'] ?></li>
<?php endforeach ?>
</ul>
