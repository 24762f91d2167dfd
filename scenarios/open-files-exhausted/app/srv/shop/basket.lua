-- What is in the basket. The database takes most of a second for it.
function handle(r)
    r.usleep(800000)
    r.content_type = 'text/html'
    r:puts('<!doctype html><title>Basket</title><p>Three shirts.\n')
    return apache2.OK
end
