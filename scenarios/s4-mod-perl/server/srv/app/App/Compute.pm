package App::Compute;

# A page that needs the processor: four thousand words of a text, counted and sorted.

use strict;
use warnings;
use Apache2::RequestRec ();
use Apache2::RequestIO ();
use Apache2::Const -compile => 'OK';

sub handler {
    my $request = shift;
    my %count;
    my $word = 1;
    for (1 .. 4000) {
        $word = $word * 1103515245 + 12345 & 0x7fffffff;
        $count{ 'w' . $word % 997 }++;
    }
    my @words = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
    $request->content_type('text/plain');
    $request->print("$_ $count{$_}\n") for @words[0 .. 19];
    return Apache2::Const::OK;
}

1;
