# gunicorn of the help desk: twice as many as processors.
bind = "127.0.0.1:8000"
pidfile = "/run/desk.pid"
workers = 4
