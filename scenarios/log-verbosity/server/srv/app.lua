-- A page that waits 10 ms for something else.
function handle(r)
    r.content_type = "text/plain"
    r.usleep(10000)
    r:puts("done\n")
    return apache2.OK
end
