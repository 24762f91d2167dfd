<?php
// Today's offers, as the partner has them.
$offers = file_get_contents('http://partner/offers');
echo "<!doctype html><title>Offers</title><pre>$offers</pre>\n";
