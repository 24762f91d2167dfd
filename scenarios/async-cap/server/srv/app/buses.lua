-- The buses that come next: the control centre answers after 20 ms.
function handle(r)
    r.content_type = 'text/html'
    r.usleep(20000)
    r:puts('<!doctype html>\n')
    r:puts('<title>Buses</title>\n')
    r:puts('<link rel="stylesheet" href="/style.css">\n')
    r:puts('<p>4 to the station, 7 to the hospital, 12 to the lake.</p>\n')
    return apache2.OK
end
