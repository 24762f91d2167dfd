-- The old system needs 200 ms to say what leaves when.
function handle(r)
    r.content_type = 'text/plain'
    r.usleep(200 * 1000)
    r:puts('9:04 to the sea, platform 2')
    return apache2.OK
end
