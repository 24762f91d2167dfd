<?php
// The start page is made of boxes. Each was written by somebody else, and opens the database for itself.
function box(string $title): void
{
    $db = new mysqli('localhost', 'shop', 'shop', 'shop');
    $number = random_int(1, 5000);
    $article = $db->query("SELECT name, price FROM article WHERE number = $number")->fetch_assoc();
    $db->close();
    echo "<h2>$title</h2>\n<p>", htmlspecialchars($article['name']), ': ', $article['price'], "</p>\n";
}
?>
<!doctype html>
<title>The shop</title>
<?php
foreach (['New', 'Cheap', 'Often bought', 'For you', 'Seen last', 'On its way', 'In your cart', 'Books', 'Shoes', 'Toys',
    'Garden', 'Kitchen', 'Music', 'Games', 'Letters', 'News'] as $title) {
    box($title);
}
