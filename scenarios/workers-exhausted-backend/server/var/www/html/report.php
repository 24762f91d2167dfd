<?php
// A report that is put together elsewhere: here it is waited for.
usleep(100000);
echo "<!doctype html><title>Report</title><p>All is well.</p>\n";
