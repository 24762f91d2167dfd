<?php
// An article from the database, with how many of it are left; the warehouse knows that.
$number = random_int(1, 5000);
$db = new mysqli('localhost', 'shop', 'shop', 'shop');
$article = $db->query("SELECT name, price FROM article WHERE number = $number")->fetch_assoc();
$left = (int) file_get_contents("http://warehouse/stock?number=$number");
?>
<!doctype html>
<title><?= htmlspecialchars($article['name']) ?></title>
<h1><?= htmlspecialchars($article['name']) ?></h1>
<p><?= $article['price'] ?> each, <?= $left ?> left.</p>
