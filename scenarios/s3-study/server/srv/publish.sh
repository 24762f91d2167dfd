# Fills the file store: 2400 files of 64 kB. The first 150 of them are what the small store has.
cd /srv/store || exit 1
number=1
while [ $number -le 2400 ]; do
    head -c 65536 /dev/urandom > "$(printf %04d.html $number)" || exit 1
    number=$((number + 1))
done
chmod 755 /srv/cgi-bin/*
mkdir -p /srv/forms && chown www-data /srv/forms
sync -f .
touch complete
