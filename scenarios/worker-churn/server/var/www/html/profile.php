<?php
// A member's page: the directory of members answers after a tenth of a second.
usleep(100000);
echo '<!doctype html><title>Member</title><p>Member since 2009.</p>';
