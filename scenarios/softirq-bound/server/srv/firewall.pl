# Prints the firewall for nft(8): 40,000 unwanted addresses, by a rule for each (`rules`) or as a set (`set`).
use strict;
use warnings;

my @UNWANTED = map { join('.', 198, 18 + ($_ >> 14), ($_ >> 6) & 255, $_ & 63) } 1 .. 40_000;
my %RULES = (
    rules => join('', map { "        ip saddr $_ drop\n" } @UNWANTED),
    set   => "        ip saddr { " . join(', ', @UNWANTED) . " } drop\n",
);
my $rules = $RULES{ $ARGV[0] // '' } or die "usage: firewall.pl rules|set\n";
# What was there before goes, in the same step.
print <<"END";
table inet firewall
delete table inet firewall
table inet firewall {
    chain input {
        type filter hook input priority filter; policy accept;
$rules    }
}
END
