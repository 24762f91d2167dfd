# gunicorn of the booking site.
bind = "0.0.0.0:8000"
workers = 2
threads = 40
