# Puts the pictures where the site has them: 160 of 1 MB.
cd /srv/photos || exit 1
number=1
while [ $number -le 160 ]; do
    head -c 1000000 /dev/urandom > "$(printf %03d.jpg $number)" || exit 1
    number=$((number + 1))
done
sync -f .
touch complete
