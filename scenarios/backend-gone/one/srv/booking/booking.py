"""The booking site: the rooms that are free."""
import time

ROOMS = [f"<li>Room {number}: two beds</li>" for number in range(20)]


def application(environ, start_response):
    time.sleep(0.04)
    body = ("<!doctype html><title>Rooms</title><ul>%s</ul>\n" % "".join(ROOMS)).encode()
    start_response("200 OK", [("Content-Type", "text/html"), ("Content-Length", str(len(body)))])
    return [body]
