"""The help desk: the list of open tickets."""
import time

TICKETS = [f"<li>Ticket {number}: the printer does not print</li>" for number in range(40)]


def customers():
    """Asks the directory of customers for their names, which takes its time."""
    time.sleep(0.08)
    return "Ten customers wait."


def application(environ, start_response):
    page = "<!doctype html><title>Tickets</title><p>%s</p><ul>%s</ul>\n" % (customers(), "".join(TICKETS))
    body = page.encode()
    start_response("200 OK", [("Content-Type", "text/html"), ("Content-Length", str(len(body)))])
    return [body]
