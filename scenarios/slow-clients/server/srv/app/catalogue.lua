-- The catalogue: the shop behind it answers after a tenth of a second.
function handle(r)
    r.content_type = 'text/html'
    -- Half the time at least, and by chance up to as much again.
    r.usleep(50000 + r.clock() % 1000 * 100)
    r:puts('<!doctype html><title>Catalogue</title><p>Tents, ropes, and boots.</p>')
    return apache2.OK
end
