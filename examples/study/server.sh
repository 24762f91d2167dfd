#!/bin/sh
# The server of files-and-programs.toml, as root: a prefork Apache in control groups (version 1) of its own, and a file store of
# 256 MB on a disk that reads 20 MB a second. `server.sh up` starts it on port 8099, `server.sh down` removes everything.
set -e
D=/srv/webdyno-study
G=webdyno-study
case "$1" in
up)
  mkdir -p $D/store $D/cgi $D/forms $D/logs $D/html
  chmod 755 $D $D/*; chown www-data $D/forms
  truncate -s 320M $D/disk.img; mkfs.ext4 -q -F -O ^has_journal $D/disk.img
  LOOP=$(losetup -f --show --direct-io=on $D/disk.img); echo $LOOP > $D/loop
  mount -o noatime $LOOP $D/store
  n=1; while [ $n -le 4096 ]; do head -c 65536 /dev/urandom > $D/store/$(printf %04d.html $n); n=$((n+1)); done; sync -f $D/store
  cat > $D/cgi/simple <<'X'
#!/bin/sh
# Shows the variables that the server gives to a program.
echo "Content-Type: text/plain"
echo
env | sort
X
  cat > $D/cgi/moderate <<'X'
#!/usr/bin/perl
my $form = $ENV{QUERY_STRING};
read STDIN, $form, $ENV{CONTENT_LENGTH} if $ENV{REQUEST_METHOD} eq 'POST';
my %field;
for (split /[&;]/, $form) {
    my ($name, $value) = split /=/, $_, 2;
    for ($name, $value) { tr/+/ /; s/%([0-9A-Fa-f]{2})/chr hex $1/ge }
    $field{$name} = $value;
}
open my $file, '>', "/srv/webdyno-study/forms/$$" or die "cannot write: $!";
print $file "$_: $field{$_}\n" for sort keys %field;
close $file;
print "Content-Type: text/plain\n\n";
print "$_: $field{$_}\n" for sort keys %field;
X
  chmod 755 $D/cgi/*
  M=/usr/lib/apache2/modules
  cat > $D/apache.conf <<X
ServerRoot $D
ServerName localhost
Listen 127.0.0.1:8099
PidFile $D/apache.pid
User www-data
Group www-data
LoadModule mpm_prefork_module $M/mod_mpm_prefork.so
LoadModule authz_core_module $M/mod_authz_core.so
LoadModule authz_host_module $M/mod_authz_host.so
LoadModule alias_module $M/mod_alias.so
LoadModule mime_module $M/mod_mime.so
LoadModule cgi_module $M/mod_cgi.so
LoadModule status_module $M/mod_status.so
TypesConfig /etc/mime.types
ExtendedStatus On
StartServers 100
MinSpareServers 20
MaxSpareServers 100
MaxRequestWorkers 100
MaxConnectionsPerChild 0
DocumentRoot $D/html
Alias /store $D/store
ScriptAlias /cgi-bin/ $D/cgi/
<Directory $D>
Require all granted
</Directory>
<Location /server-status>
SetHandler server-status
Require local
</Location>
ErrorLog $D/logs/error.log
LogFormat "%h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\"" combined
CustomLog $D/logs/access.log combined
X
  for c in memory blkio cpuset; do mkdir -p /sys/fs/cgroup/$c/$G; done
  cat /sys/fs/cgroup/cpuset/cpuset.cpus > /sys/fs/cgroup/cpuset/$G/cpuset.cpus
  cat /sys/fs/cgroup/cpuset/cpuset.mems > /sys/fs/cgroup/cpuset/$G/cpuset.mems
  echo "$(lsblk -dno MAJ:MIN $LOOP | tr -d ' ') $((20*1024*1024))" > /sys/fs/cgroup/blkio/$G/blkio.throttle.read_bps_device
  sh -c "for c in memory blkio cpuset; do echo \$\$ > /sys/fs/cgroup/\$c/$G/cgroup.procs; done; exec apache2 -f $D/apache.conf -k start"
  ;;
down)
  [ -e $D/apache.pid ] && kill $(cat $D/apache.pid) && while [ -e $D/apache.pid ]; do sleep 0.2; done; sleep 1
  umount $D/store; losetup -d $(cat $D/loop)
  for c in memory blkio cpuset; do rmdir /sys/fs/cgroup/$c/$G; done
  rm -rf $D
  ;;
*)
  echo "usage: $0 up|down" >&2; exit 2
  ;;
esac
