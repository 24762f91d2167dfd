# Puts the shop where it belongs: pages in a deep tree, and the .htaccess files that have come together in it.
use strict;
use warnings;
use File::Path qw(make_path);

my $SHOP = '/srv/shop';
my @SHELVES = qw(
    de/damen/schuhe/stiefel/winter/leder
    de/herren/schuhe/halbschuhe/sommer/leinen
    en/women/shoes/boots/winter/leather
    fr/enfants/chaussures/bottes/pluie/caoutchouc
);

sub file {
    my ($path, @lines) = @_;
    open(my $file, '>', $path) or die "$path: $!\n";
    print $file map { "$_\n" } @lines;
    close($file) or die "$path: $!\n";
}

for my $shelf (@SHELVES) {
    for my $number (1 .. 40) {
        make_path("$SHOP/$shelf/$number");
        file("$SHOP/$shelf/$number/artikel.html", "<!doctype html><title>Artikel $number</title><p>$shelf</p>");
    }
    # What the installer puts into every folder.
    my $folder = $SHOP;
    for my $name (split m{/}, $shelf) {
        $folder .= "/$name";
        file("$folder/.htaccess", 'Options -Indexes', 'AddDefaultCharset UTF-8');
    }
}

# The main one: unwanted robots, and where the articles of the old shop are now.
file("$SHOP/.htaccess",
    'Options -Indexes',
    (map { "SetEnvIfNoCase User-Agent \"^robot-$_/\" unwanted" } 1 .. 200),
    'Deny from env=unwanted',
    'RewriteEngine On',
    (map { "RewriteRule \"^shop/artikel-$_\\.php\$\" \"/de/artikel/$_.html\" [R=301,L]" } 1 .. 2300),
);
# There last: the shop is complete.
file("$SHOP/ready.html", '<!doctype html><title>Shop</title>');
