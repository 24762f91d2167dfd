-- The ships of the museum: the index answers after a tenth of a second.
function handle(r)
    r.content_type = 'text/html'
    r.usleep(100000)
    r:puts('<!doctype html>\n')
    r:puts('<title>Museum</title>\n')
    r:puts('<p>Open until six. Ships, maps, and instruments.</p>\n')
    return apache2.OK
end
