<?php
// Articles whose names have a word in them.
$word = $_GET['word'] ?? '';
$names = array_map(fn ($number) => "Article $number", range(1, 400));
$found = array_filter($names, fn ($name) => stripos($name, $word) !== false);
?>
<!doctype html>
<title>Search</title>
<p><?= count($found) ?> articles found.</p>
