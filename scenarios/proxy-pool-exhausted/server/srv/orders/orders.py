"""The orders of today."""
import time


def application(environ, start_response):
    # The stock is asked, which takes its time.
    time.sleep(0.05)
    body = b"<!doctype html><title>Orders</title><p>17 orders are open.</p>\n"
    start_response("200 OK", [("Content-Type", "text/html"), ("Content-Length", str(len(body)))])
    return [body]
