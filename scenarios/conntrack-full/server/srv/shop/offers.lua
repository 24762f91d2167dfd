-- The offers of today. The search that knows them takes 30 ms.
function handle(r)
    r.usleep(30000)
    r.content_type = 'text/html'
    r:puts('<!doctype html><title>Offers</title><p>Three shirts for the price of two.</p>')
    return apache2.OK
end
