-- What others bought: that takes the partner 0.6 to 1 seconds.
function handle(r)
    r.content_type = 'text/plain'
    r.usleep(math.random(600, 1000) * 1000)
    r:puts('17 23 42')
    return apache2.OK
end
