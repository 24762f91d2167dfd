<?php
// The draw of the day: it is asked for at the ticket office, which takes half a second.
usleep(500000);
echo '<!doctype html><title>Draw</title><p>3 11 19 24 36 42</p>';
