package Shop::Basket;

# A visitor's basket.

use strict;
use warnings;
use Apache2::RequestRec ();
use Apache2::RequestIO ();
use Apache2::Connection ();
use APR::SockAddr ();
use Apache2::Const -compile => 'OK';

# Baskets that were shown, so that the next page has them at once.
my %shown;

sub handler {
    my $request = shift;
    select undef, undef, undef, 0.01;    # The database's answer.
    my $visitor = $request->connection->client_addr->port . '-' . $request->request_time . '-' . rand;
    my $basket = $shown{$visitor} //= make($visitor);
    $request->content_type('text/html');
    $request->print(substr($basket, 0, 2000));
    return Apache2::Const::OK;
}

sub make {
    my $visitor = shift;
    return join '', map { "<li>visitor $visitor, article $_" . ' ' x 60 . "</li>\n" } 1 .. 500;
}

1;
