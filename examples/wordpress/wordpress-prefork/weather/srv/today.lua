-- Today's weather, after 400 ms.
function handle(r)
    r.content_type = 'text/plain'
    r.usleep(400 * 1000)
    r:puts('Rain until noon, then sun.')
    return apache2.OK
end
