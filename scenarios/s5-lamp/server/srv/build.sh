# Writes what each page of the shop embeds: 4 scripts, 7 style sheets and 8 images, 180 kB together.
mkdir -p /srv/shop/js /srv/shop/css /srv/shop/img && cd /srv/shop || exit 1
for number in 1 2 3 4; do
    yes "shop.part$number.push(function (cart) { return cart.total * $number; });" | head -c 10000 >js/$number.js
done
for number in 1 2 3 4 5 6 7; do
    yes ".box$number { margin: ${number}px; color: #33${number}; border: thin solid }" | head -c 4000 >css/$number.css
done
for number in 1 2 3 4 5 6 7 8; do
    head -c 14000 /dev/urandom >img/$number.png
done
