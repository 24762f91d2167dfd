-- A page that waits 200 ms for something else, and uses hardly any CPU.
function handle(r)
    r.content_type = 'text/html'
    r.usleep(200000)
    r:puts('<!doctype html><title>A slow page</title><p>It waited for something.</p>')
    return apache2.OK
end
