# Puts the archive where it belongs: a front page in four languages, and the pictures, all in one folder.
use strict;
use warnings;

my $ARCHIVE = '/srv/archive';
my %GREETINGS = (de => 'Willkommen', en => 'Welcome', es => 'Bienvenidos', fr => 'Bienvenue');

sub file {
    my ($path, $text) = @_;
    open(my $file, '>', $path) or die "$path: $!\n";
    print $file $text;
    close($file) or die "$path: $!\n";
}

mkdir $ARCHIVE or die "$ARCHIVE: $!\n";
while (my ($language, $greeting) = each %GREETINGS) {
    file("$ARCHIVE/index.html.$language", "<!doctype html><title>$greeting</title><h1>$greeting</h1>\n");
}
file(sprintf('%s/picture-%05d.jpg', $ARCHIVE, $_), 'not a picture') for 1 .. 15000;
# There last: the archive is complete.
file("$ARCHIVE/ready.txt", "complete\n");
