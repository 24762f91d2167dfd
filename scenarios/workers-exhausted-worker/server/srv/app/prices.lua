-- Prices of the day: the exchange answers after a fifth of a second.
function handle(r)
    r.content_type = 'text/html'
    -- Half the time at least, and by chance up to as much again.
    r.usleep(100000 + r.clock() % 1000 * 200)
    r:puts('<!doctype html><title>Prices</title><p>Copper 8,912, tin 25,350.</p>')
    return apache2.OK
end
