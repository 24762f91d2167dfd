<?php
// An article, with what customers think of it.
$number = random_int(1, 2000);
$db = new mysqli('localhost', 'shop', 'shop', 'shop');
$article = $db->query("SELECT name, AVG(stars) AS stars, COUNT(*) AS reviews, MAX(text) AS text
    FROM article JOIN review ON review.article = article.number WHERE article.number = $number")->fetch_assoc();
?>
<!doctype html>
<title><?= htmlspecialchars($article['name']) ?></title>
<p><?= str_repeat('*', round($article['stars'])) ?> by <?= $article['reviews'] ?> customers, one of whom wrote:
<?= htmlspecialchars($article['text']) ?></p>
