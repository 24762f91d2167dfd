# gunicorn of the shop.
bind = "127.0.0.1:8000"
pidfile = "/run/shop.pid"
workers = 8
