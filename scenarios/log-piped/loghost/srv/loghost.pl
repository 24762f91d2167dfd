# Takes lines of logs, writes each to the disk, and confirms it: 5 ms in all.
use strict;
use warnings;
use IO::Socket::INET;
use Time::HiRes qw(usleep);

$SIG{CHLD} = 'IGNORE';
my $listener = IO::Socket::INET->new(LocalPort => 6514, Listen => 10, ReuseAddr => 1) or die "port 6514: $@\n";
open(my $log, '>>', '/var/log/collected.log') or die "collected.log: $!\n";
$log->autoflush(1);
while (my $sender = $listener->accept) {
    next if fork;
    $sender->autoflush(1);
    while (my $line = <$sender>) {
        print $log $line;
        usleep(5000);
        print $sender "ok\n";
    }
    exit;
}
