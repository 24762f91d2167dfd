"""A name server that knows one address, and answers one question after the other, 20 ms each (RFC 1035)."""
import socket
import time

ADDRESS = bytes([10, 80, 1, 2])
TYPE_A = b"\x00\x01"


def answer(query):
    """The query, with one answer where it asks for an address of IPv4: name as in the question, type, class, 60 s."""
    end = query.index(b"\0", 12) + 5
    question = query[12:end]
    found = question[-4:-2] == TYPE_A
    header = query[:2] + b"\x81\x80\x00\x01" + (b"\x00\x01" if found else b"\x00\x00") + b"\x00\x00\x00\x00"
    record = b"\xc0\x0c" + TYPE_A + b"\x00\x01\x00\x00\x00\x3c\x00\x04" + ADDRESS
    return header + question + (record if found else b"")


server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 53))
open("/run/names.ready", "w").close()
while True:
    query, client = server.recvfrom(512)
    time.sleep(0.02)
    server.sendto(answer(query), client)
