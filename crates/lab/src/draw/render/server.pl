# An application server: some processes, each with one request at a time. ADDRESS:PORT PROCESSES WAIT_MS ROUNDS BYTES ELEMENTS,
# and for how long it works on when the answer is out: LATER_MS.
use strict;
use warnings;
use IO::Socket::INET;

my ($address, $processes, $wait_ms, $rounds, $bytes, $elements, $later_ms) = @ARGV;
my $listener = IO::Socket::INET->new(LocalAddr => $address, Listen => 511, ReuseAddr => 1)
    or die "$address: $@\n";
$SIG{PIPE} = 'IGNORE';
for (2 .. $processes) {
    last unless fork // die "fork: $!\n";
}
my $body = '<!doctype html><title>Page</title>' . ($elements // '') . ('<p>A line of text.</p>' x ($bytes / 22));
my $answer = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: " . length($body) . "\r\n\r\n$body";
while (1) {
    my $client = $listener->accept or next;
    while (defined(my $line = <$client>)) {
        last if $line =~ /^\r?\n$/;
    }
    my $x = 1;
    $x = ($x * 31 + $_) % 65521 for 1 .. $rounds;
    select(undef, undef, undef, $wait_ms / 1000) if $wait_ms;
    print $client $answer;
    select(undef, undef, undef, $later_ms / 1000) if $later_ms;
    close $client;
}
