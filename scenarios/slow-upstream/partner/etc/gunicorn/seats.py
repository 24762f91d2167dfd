# gunicorn of the seats.
bind = "0.0.0.0:8080"
pidfile = "/run/seats.pid"
workers = 1
threads = 4
