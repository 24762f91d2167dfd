# gunicorn of the orders.
bind = "127.0.0.1:8000"
workers = 1
threads = 64
