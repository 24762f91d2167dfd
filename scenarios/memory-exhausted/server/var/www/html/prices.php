<?php
// The price list: every article with its price, and the one with the best margin for each kind of customer.
$prices = [];
for ($article = 0; $article < 1000000; $article++) {
    $prices[] = $article * 7 % 1013;
}
$best = 0;
foreach ([0.9, 0.85, 0.8, 0.7] as $rebate) {
    $sum = 0;
    foreach ($prices as $price) {
        $sum += $price * $rebate;
    }
    $best = max($best, $sum);
}
printf("%d articles, %.2f\n", count($prices), $best);
