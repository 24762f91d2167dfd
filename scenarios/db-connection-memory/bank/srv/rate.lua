-- How many dollars a euro is: the bank needs 1500 ms to say it.
function handle(r)
    r.content_type = 'text/plain'
    r.usleep(1500 * 1000)
    r:puts('1.16')
    return apache2.OK
end
