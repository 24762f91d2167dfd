"""Compares the prices of all shops for an item."""

SHOPS = [(f"Shop {number}", 900 + 7919 * number % 400) for number in range(600)]


def offers():
    """The offers with shipping, the cheapest first: each is compared with all that are kept so far."""
    kept = []
    for shop, price in SHOPS:
        total = price + (0 if price > 1200 else 49)
        at = 0
        while at < len(kept) and kept[at][0] <= total:
            at += 1
        kept.insert(at, (total, shop))
    return kept[:20]


def application(environ, start_response):
    rows = "".join(f"<tr><td>{shop}<td>{total / 100:.2f}" for total, shop in offers())
    body = f"<!doctype html><title>Prices</title><table>{rows}</table>\n".encode()
    start_response("200 OK", [("Content-Type", "text/html"), ("Content-Length", str(len(body)))])
    return [body]
