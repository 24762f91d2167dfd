-- A page that waits about 200 ms for something else, and uses hardly any CPU.
function handle(r)
    r.content_type = 'text/html'
    -- Half the time at least, and by chance up to as much again.
    r.usleep(100000 + r.clock() % 1000 * 200)
    r:puts('<!doctype html><title>Offers</title><p>Three shirts for the price of two.</p>')
    return apache2.OK
end
