package Shop::Search;

# Finds an article by a word of its description.

use strict;
use warnings;
use Apache2::RequestRec ();
use Apache2::RequestIO ();
use Apache2::Const -compile => 'OK';
use Shop::Catalogue ();

sub handler {
    my $request = shift;
    select undef, undef, undef, 0.01;    # The database's answer.
    my $word = 'article ' . (1 + int rand Shop::Catalogue::ARTICLES) . ',';
    my ($found, $from) = (0, 0);
    while (($from = index($Shop::Catalogue::text, $word, $from)) >= 0) {
        $found++;
        $from++;
    }
    $request->content_type('text/plain');
    $request->print("$word $found found\n");
    return Apache2::Const::OK;
}

1;
