<?php
// The timetable of a class: the school's own program is asked for it, which takes a quarter of a second.
usleep(250000);
echo '<!doctype html><title>Timetable</title><p>Mathematics, English, Physics, Sports</p>';
