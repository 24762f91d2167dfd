-- A page that waits 20 ms for something else.
function handle(r)
    r.content_type = "text/plain"
    r.usleep(20000)
    r:puts("done\n")
    return apache2.OK
end
