# Fills the store: 40 objects named by their checksums, a folder for each digit.
use strict;
use warnings;
use Digest::SHA qw(sha512_hex);
use File::Path qw(make_path);

for my $number (1 .. 40) {
    my $folder = join('/', '/srv/store', split(//, sha512_hex("object $number")));
    make_path($folder);
    open(my $file, '>', "$folder/object") or die "$folder: $!\n";
    print $file "object $number\n";
    close($file) or die "$folder: $!\n";
}
# There last: the store is complete.
open(my $complete, '>', '/srv/store/complete') or die "complete: $!\n";
