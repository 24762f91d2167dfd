# Hands lines of the log over, one at a time.
use strict;
use warnings;
use IO::Handle;

open(my $log, '>>', '/var/log/collected.log') or die "collected.log: $!\n";
$log->autoflush(1);
while (my $line = <STDIN>) {
    print $log $line;
    select(undef, undef, undef, 0.012);
}
