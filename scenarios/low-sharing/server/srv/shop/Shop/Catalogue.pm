package Shop::Catalogue;

# All articles with their descriptions, as one text that is searched.

use strict;
use warnings;
use constant ARTICLES => 80_000;

our $text = '';
$text .= "article $_, " . 'in many colours and sizes, delivered within two days, ' x 2 . "\n" for 1 .. ARTICLES;

1;
