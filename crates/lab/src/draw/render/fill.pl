# Puts the site's files where they belong.
use strict;
use warnings;
use File::Basename qw(dirname);
use File::Path qw(make_path);

my $seed = 17;
my @words = qw(north river stone paper light garden winter harbour letter silver window bridge);

sub text {
    my ($length) = @_;
    my $text = '';
    while (length($text) < $length) {
        $seed = ($seed * 1103515245 + 12345) % 2147483648;
        $text .= $words[($seed >> 16) % @words] . ' ' . (($seed >> 8) % 1000) . ' ';
    }
    return substr($text, 0, $length);
}

sub file {
    my ($path, $text) = @_;
    make_path(dirname($path));
    open(my $file, '>', $path) or die "$path: $!\n";
    print $file $text;
    close($file) or die "$path: $!\n";
}

