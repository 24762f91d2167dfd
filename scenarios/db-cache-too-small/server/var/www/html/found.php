<?php
// What the search found: twenty articles with the first words of their descriptions.
$numbers = [];
while (count($numbers) < 20) {
    $numbers[] = random_int(1, 12000);
}
$db = new mysqli('localhost', 'shop', 'shop', 'shop');
$found = $db->query('SELECT number, name, LEFT(text, 60) AS words FROM article WHERE number IN (' . implode(',', $numbers) . ')');
?>
<!doctype html>
<title>Found</title>
<?php foreach ($found as $article): ?>
<h2><?= htmlspecialchars($article['name']) ?></h2>
<p><?= htmlspecialchars($article['words']) ?></p>
<?php endforeach ?>
