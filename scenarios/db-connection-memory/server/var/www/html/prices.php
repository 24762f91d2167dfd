<?php
// The price list, in dollars, with what is alike side by side. It is long: its lines are fetched while they are printed.
$db = new mysqli('localhost', 'shop', 'shop', 'shop');
$articles = $db->query(
    'SELECT number, name, price FROM article ORDER BY maker, made_of, made_for, remarks', MYSQLI_USE_RESULT);
$rate = (float) file_get_contents('http://bank/rate');
?>
<!doctype html>
<title>Prices</title>
<?php foreach ($articles as $article): if ($article['price'] > 80): ?>
<p><?= $article['number'], ' ', htmlspecialchars($article['name']) ?>: $<?= round($article['price'] * $rate, 2) ?></p>
<?php endif; endforeach ?>
