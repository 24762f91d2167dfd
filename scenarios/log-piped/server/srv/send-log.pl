# Sends each line to the log host, and waits until it has confirmed it.
use strict;
use warnings;
use IO::Socket::INET;

my $loghost = IO::Socket::INET->new(PeerAddr => 'loghost', PeerPort => 6514) or die "loghost: $@\n";
$loghost->autoflush(1);
while (my $line = <STDIN>) {
    print $loghost $line;
    defined <$loghost> or die "loghost: closed\n";
}
