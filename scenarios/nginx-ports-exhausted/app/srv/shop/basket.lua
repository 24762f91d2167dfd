-- What is in the basket.
function handle(r)
    r.usleep(20000)
    r.content_type = 'text/html'
    r.headers_out['Content-Length'] = '53'
    r:puts('<!doctype html><title>Basket</title><p>Three shirts.\n')
    return apache2.OK
end
