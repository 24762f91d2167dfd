# gunicorn of the prices: threads are cheaper than processes.
bind = "127.0.0.1:8000"
pidfile = "/run/prices.pid"
workers = 1
threads = 12
