"""The seats that are left of a flight."""
import time


def application(environ, start_response):
    # The booking system is asked, which takes its time.
    time.sleep(0.05)
    body = b"12 seats are left.\n"
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
