<?php
// An album: its list of photos comes from the store, which takes a tenth of a second.
usleep(100000);
echo '<!doctype html><title>Summer</title><p>24 photos';
