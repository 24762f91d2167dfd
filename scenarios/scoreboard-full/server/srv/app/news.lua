-- News of the club: the calendar program answers after a fifth of a second.
function handle(r)
    r.content_type = 'text/html'
    -- Half the time at least, and by chance up to as much again.
    r.usleep(100000 + r.clock() % 1000 * 200)
    r:puts('<!doctype html><title>News</title><p>Training is on Thursday.</p>')
    return apache2.OK
end
