-- The shop: the merchandise system answers after a fifth of a second.
function handle(r)
    r.content_type = 'text/html'
    -- Half the time at least, and by chance up to as much again.
    r.usleep(100000 + r.clock() % 1000 * 200)
    r:puts('<!doctype html><title>Shop</title><p>All you need for the garden.</p>')
    return apache2.OK
end
