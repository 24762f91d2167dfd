<?php
// Somebody buys an article: the order gets the next number of this year's invoices.
$article = random_int(1, 5000);
$db = new mysqli('localhost', 'shop', 'shop', 'shop');
$db->begin_transaction();
$db->query('UPDATE invoice_number SET last = last + 1 WHERE year = 2026');
$number = $db->query('SELECT last FROM invoice_number WHERE year = 2026')->fetch_row()[0];
$left = (int) file_get_contents("http://warehouse/stock?number=$article");
$db->query("INSERT INTO invoice VALUES ($number, $article, 'shelf $left')");
$db->commit();
?>
<!doctype html>
<title>Thank you</title>
<p>Your invoice has the number <?= $number ?>.</p>
