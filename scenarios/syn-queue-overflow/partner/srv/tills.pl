#!/usr/bin/perl
# The partner's 200 tills ask for orders, each every ten seconds: 20 connections are begun a second. Who gets no answer
# within six seconds gives up.
use strict;
use warnings;
use Socket qw(:DEFAULT SOCK_NONBLOCK);
use Time::HiRes qw(sleep time);

my $server = sockaddr_in(80, inet_aton('server'));
my @tills;
while (1) {
    socket(my $till, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0) or die "socket: $!";
    connect($till, $server);
    push @tills, [time, $till];
    shift @tills while time - $tills[0][0] > 6;
    sleep(1 / 20);
}
