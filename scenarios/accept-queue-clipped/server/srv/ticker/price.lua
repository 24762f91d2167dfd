-- The next price. There is one each half second, and who asks gets the answer as soon as it is known.
function handle(r)
    local interval = 500000
    r.usleep(interval - r:clock() % interval)
    r.content_type = 'application/json'
    r:puts('{"article": 17, "price": 24.10}\n')
    return apache2.OK
end
