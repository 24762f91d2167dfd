<?php
// What is on tonight: the calendar answers after a tenth of a second.
usleep(100000);
echo '<!doctype html><title>Theatre</title><p>Tonight: The Seagull, at half past seven.</p>';
