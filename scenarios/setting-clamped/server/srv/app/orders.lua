-- Orders of a customer: the warehouse program answers after a fifth of a second.
function handle(r)
    r.content_type = 'text/html'
    -- Half the time at least, and by chance up to as much again.
    r.usleep(100000 + r.clock() % 1000 * 200)
    r:puts('<!doctype html><title>Orders</title><p>2 orders are on their way.</p>')
    return apache2.OK
end
