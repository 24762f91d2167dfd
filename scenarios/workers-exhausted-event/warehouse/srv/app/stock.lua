-- What is in stock: the conveyor answers after a quarter of a second, however many ask.
function handle(r)
    r.content_type = 'text/html'
    -- Half the time at least, and by chance up to as much again.
    r.usleep(125000 + r.clock() % 1000 * 250)
    r:puts('<!doctype html><title>Stock</title><p>42 pieces.</p>')
    return apache2.OK
end
