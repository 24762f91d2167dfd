<?php
// The front page. What is in stock is asked for elsewhere.
usleep(20000);
echo "<!doctype html><title>Shop</title><p>Welcome. We have everything.</p>\n";
