-- The headlines come from the agency, which takes 20 ms.
function handle(r)
    r.content_type = 'text/html'
    r.usleep(20000)
    r:puts('<!doctype html>\n')
    r:puts('<title>News</title>\n')
    r:puts('<link rel="stylesheet" href="/style.css">\n')
    r:puts('<nav><img src="/logo.svg" alt="News"></nav>\n')
    r:puts('<p>What happened today: a bridge was opened, and two trees fell.</p>\n')
    return apache2.OK
end
