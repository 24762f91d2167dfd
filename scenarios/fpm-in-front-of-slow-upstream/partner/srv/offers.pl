# The partner's service: it answers any number of requests at the same time, each after 200 ms.
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(time);

my $DELAY_S = 0.2;
my $BODY = "A week in the mountains\nA weekend at the sea\n";
my $ANSWER = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: " . length($BODY)
    . "\r\n\r\n$BODY";

$SIG{PIPE} = 'IGNORE';
my $listener = IO::Socket::INET->new(LocalPort => 80, Listen => 1024, ReuseAddr => 1) or die "port 80: $@\n";
my $select = IO::Select->new($listener);
my (%heard, @waiting);    # what was read of each request; [when it is due, to whom], the oldest first

while (1) {
    my $left = @waiting ? $waiting[0][0] - time : undef;
    if (defined $left && $left <= 0) {
        my (undef, $client) = @{ shift @waiting };
        syswrite($client, $ANSWER);
        close($client);
        next;
    }
    for my $socket ($select->can_read($left)) {
        if ($socket == $listener) {
            my $client = $listener->accept or next;
            $heard{$client} = '';
            $select->add($client);
            next;
        }
        my $read = sysread($socket, $heard{$socket}, 4096, length $heard{$socket});
        next if $read && $heard{$socket} !~ /\r\n\r\n/;
        $select->remove($socket);
        delete $heard{$socket};
        push @waiting, [time + $DELAY_S, $socket] if $read;
    }
}
