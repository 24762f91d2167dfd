"""The shop: takes an order, with a number that follows the one before it."""
import fcntl
import time

HOLDS_WHILE_WRITING = True


def write_order(number):
    """Hands the order to the warehouse, which takes its time."""
    time.sleep(0.04)
    return "Order %d is taken.\n" % number


def take_order():
    with open("/run/last-order", "a+") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        last.seek(0)
        number = int(last.read() or 0) + 1
        last.seek(0)
        last.truncate()
        last.write(str(number))
        last.flush()
        if HOLDS_WHILE_WRITING:
            return write_order(number)
    return write_order(number)


def application(environ, start_response):
    body = take_order().encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
