# A resolver that is far away: each answer takes 150 ms, of any number at the same time. It knows the names of all
# addresses (PTR), and the addresses of these names (A), by RFC 1035.
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(time);

my $DELAY_S = 0.15;
my ($A, $PTR, $IN) = (1, 12, 1);

my $udp = IO::Socket::INET->new(LocalPort => 53, Proto => 'udp') or die "port 53: $@\n";
# As every resolver it listens on TCP, too; nobody asks it there.
my $tcp = IO::Socket::INET->new(LocalPort => 53, Proto => 'tcp', Listen => 5, ReuseAddr => 1) or die "port 53: $@\n";
my $select = IO::Select->new($udp);
my @waiting;    # [when it is due, to whom, question], the oldest first

sub name { join('', map { pack('C/a*', $_) } split(/\./, shift)) . "\0" }

sub record {
    my ($type, $data) = @_;
    # The name is that of the question, which begins at byte 12.
    return pack('n n n N n/a*', 0xc00c, $type, $IN, 300, $data);
}

sub answer {
    my ($question) = @_;
    my ($id) = unpack('n', $question);
    my ($end, @words) = (12);
    while ((my $length = unpack("x$end C", $question)) > 0) {
        push @words, substr($question, $end + 1, $length);
        $end += $length + 1;
    }
    my ($type) = unpack("x$end x n", $question);
    my $name = join('.', @words);
    my $record = '';
    if ($type == $PTR && $name =~ /^(\d+)\.(\d+)\.(\d+)\.(\d+)\.in-addr\.arpa$/i) {
        $record = record($PTR, name("dsl-$4-$3-$2-$1.isp.example"));
    } elsif ($type == $A && $name =~ /^dsl-(\d+)-(\d+)-(\d+)-(\d+)\.isp\.example$/i) {
        $record = record($A, pack('C4', $1, $2, $3, $4));
    }
    # A recursive answer without an error.
    return pack('n n n n n n', $id, 0x8180, 1, $record ne '' ? 1 : 0, 0, 0)
        . substr($question, 12, $end + 5 - 12) . $record;
}

while (1) {
    my $left = @waiting ? $waiting[0][0] - time : undef;
    if (!defined $left || $left > 0) {
        if ($select->can_read($left)) {
            my $who = $udp->recv(my $question, 512);
            push @waiting, [time + $DELAY_S, $who, $question] if defined $who && length $question >= 17;
        }
        next;
    }
    my (undef, $who, $question) = @{ shift @waiting };
    $udp->send(answer($question), 0, $who);
}
