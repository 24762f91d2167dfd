<?php
// An article, with what customers think of it, and how many of it are left; the warehouse knows that.
$number = random_int(1, 2000);
$db = new mysqli('localhost', 'shop', 'shop', 'shop');
$article = $db->query("SELECT name, AVG(stars) AS stars, COUNT(*) AS reviews, MAX(text) AS text
    FROM article JOIN review ON review.article = article.number WHERE article.number = $number")->fetch_assoc();
$db->close();
$left = (int) file_get_contents("http://warehouse/stock?number=$number");
?>
<!doctype html>
<title><?= htmlspecialchars($article['name']) ?></title>
<p><?= $left ?> left.</p>
<p><?= str_repeat('*', round($article['stars'])) ?> by <?= $article['reviews'] ?> customers, one of whom wrote:
<?= htmlspecialchars($article['text']) ?></p>
