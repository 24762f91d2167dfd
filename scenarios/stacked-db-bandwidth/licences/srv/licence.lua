-- Whether a customer may see a photo: the agency needs 150 ms to say it.
function handle(r)
    r.content_type = 'text/plain'
    r.usleep(150 * 1000)
    r:puts('granted')
    return apache2.OK
end
