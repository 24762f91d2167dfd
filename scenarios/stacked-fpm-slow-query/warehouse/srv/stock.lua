-- How many there are of an article: the old system needs 200 ms to say it.
function handle(r)
    r.content_type = 'text/plain'
    r.usleep(200 * 1000)
    r:puts('17')
    return apache2.OK
end
