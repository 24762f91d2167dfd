<?php
// Books, and tells the number of the booking.
function work(): void
{
    // Asks the hotel whether the room is free, which takes its time.
    usleep(50000);
}

// Numbers go up without gaps: one at a time.
$turn = sem_get(ftok(__FILE__, 'b'));
sem_acquire($turn);
work();
$counter = fopen('/var/tmp/bookings', 'c+');
$number = (int) fgets($counter) + 1;
rewind($counter);
fwrite($counter, "$number\n");
fclose($counter);
sem_release($turn);
echo "<!doctype html><title>Booked</title><p>This is booking $number.</p>\n";
