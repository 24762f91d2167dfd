package Shop::Statistics;

# Counts what is asked for by which of the shop's campaigns: a table of words, in each worker's own memory.

use strict;
use warnings;
use Apache2::RequestRec ();
use Apache2::Const -compile => 'OK';

my $campaigns = '';
my %visits;

# When a worker begins: reads the campaigns.
sub load {
    $campaigns .= "campaign $_ of the garden shop, spring and summer, with free delivery\n" for 1 .. 60_000;
    return Apache2::Const::OK;
}

# After each answer: which campaign was it?
sub count {
    my $request = shift;
    my $found = index $campaigns, 'campaign ' . ($request->args // 'none') . ' of';
    $visits{$found}++;
    return Apache2::Const::OK;
}

1;
