<?php
// A picture's frame in the visitor's colours, 240 by 160 points, with a soft shadow.
$seed = crc32($_SERVER['REMOTE_PORT']);
$points = '';
for ($y = 0; $y < 160; $y++) {
    for ($x = 0; $x < 240; $x++) {
        $edge = min($x, $y, 239 - $x, 159 - $y);
        $shade = 255 * (1 - exp(-$edge / 9)) * (0.9 + 0.1 * sin(($x + $seed) / 7) * cos($y / 5));
        $points .= chr((int) $shade);
    }
}
header('Content-Type: image/x-portable-graymap');
echo "P5 240 160 255\n", $points;
