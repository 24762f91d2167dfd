-- How many there are of an article: the old system needs 150 ms to say it.
function handle(r)
    r.content_type = 'text/plain'
    r.usleep(150 * 1000)
    r:puts('17')
    return apache2.OK
end
