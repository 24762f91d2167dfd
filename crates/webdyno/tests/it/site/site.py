#!/usr/bin/python3 -IS
"""A small site behind Apache's mod_cgi that verifies what visitors do, and writes down what it saw, one JSON line each.

It shares nothing with webdyno: queries and forms are parsed by urllib.parse, cookies by http.cookies, uploads by
email.parser, JSON by json. SITE_DATA is the directory of its data: users.json, sessions/, uploads/, records.jsonl.
"""
import html, json, os, secrets, sys, time
from http.cookies import SimpleCookie
from urllib.parse import parse_qs

DATA = os.environ["SITE_DATA"]
PATH = os.environ.get("PATH_INFO", "")
METHOD = os.environ["REQUEST_METHOD"]
QUERY = {name: values[0] for name, values in parse_qs(os.environ.get("QUERY_STRING", ""), keep_blank_values=True).items()}
BODY = sys.stdin.buffer.read(int(os.environ.get("CONTENT_LENGTH") or 0))
KIND = os.environ.get("CONTENT_TYPE", "")


def session_file(sid):
    return f"{DATA}/sessions/{sid}"


def cookie(name):
    given = SimpleCookie(os.environ.get("HTTP_COOKIE", "")).get(name)
    return given and given.value


def session():
    """The session that the cookie names, and what the server knows of it."""
    sid = cookie("sid")
    if not sid or not sid.isalnum() or not os.path.exists(session_file(sid)):
        return None, None
    with open(session_file(sid), encoding="utf-8") as file:
        return sid, json.load(file)


def keep(sid, known):
    with open(session_file(sid) + ".new", "w", encoding="utf-8") as file:
        json.dump(known, file)
    os.rename(session_file(sid) + ".new", session_file(sid))


def record(ok, **seen):
    line = {"step": PATH, "ok": ok, "at_s": time.time(), "user": QUERY.get("user"), "session": QUERY.get("session"), **seen}
    handle = os.open(f"{DATA}/records.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, (json.dumps(line) + "\n").encode())  # one write to the end of a file is not torn
    os.close(handle)


def answer(status, kind, body, *headers):
    lines = [f"Status: {status}", f"Content-Type: {kind}", *headers, "", ""]
    sys.stdout.buffer.write("\r\n".join(lines).encode() + body.encode())


def refuse(why, **seen):
    record(False, why=why, **seen)
    answer("403 Forbidden", "text/plain", why)


def login_form():
    known_before = cookie("sid")
    sid = secrets.token_hex(16)
    token = secrets.token_urlsafe(8) + "+/=&<\"' é%41"
    keep(sid, {"csrf": token, "user": None})
    record(known_before is None, sid=sid, why=f"a new session came with the cookie {known_before}")
    page = (f"<!doctype html><title>x</title><!-- <input name=csrf value=wrong> --><form id=search><input name=csrf value=no></form>"
            f"<FORM id='login'><INPUT type=hidden NAME=csrf VALUE='{html.escape(token)}'></form>")
    answer("200 OK", "text/html; charset=utf-8", page, f"Set-Cookie: sid={sid}; Path=/site; HttpOnly",
           "Set-Cookie: elsewhere=1; Path=/other", "Set-Cookie: gone=1; Max-Age=0")


def login():
    sid, known = session()
    if not sid:
        return refuse("no session")
    form = parse_qs(BODY.decode("ascii"), keep_blank_values=True, strict_parsing=True)
    if KIND != "application/x-www-form-urlencoded":
        return refuse("content type", kind=KIND)
    if form.get("csrf") != [known["csrf"]]:
        return refuse("token", got=form.get("csrf"), wanted=known["csrf"])
    with open(f"{DATA}/users.json", encoding="utf-8") as file:
        users = json.load(file)
    name, password = form["name"][0], form["password"][0]
    if name not in users or users[name] != password:
        return refuse("password", name=name, password=password)
    if form.get("odd") != ["a&b=c d+e%20;\r\n\"é😀"]:
        return refuse("odd characters", got=form.get("odd"))
    os.remove(session_file(sid))
    new = secrets.token_hex(16)
    keep(new, {"user": name, "before": sid})
    record(True, sid=new, before=sid, name=name)
    answer("303 See Other", "text/plain", "", f"Set-Cookie: sid={new}; Path=/site; HttpOnly",
           f"Location: /site/home?{os.environ['QUERY_STRING']}")


def logged_in():
    sid, known = session()
    if not sid or not known["user"]:
        refuse("not logged in", cookies=os.environ.get("HTTP_COOKIE"))
        return None, None
    if cookie("elsewhere") or cookie("gone"):
        refuse("a cookie that is not for here", cookies=os.environ.get("HTTP_COOKIE"))
        return None, None
    return sid, known


def home():
    sid, known = logged_in()
    if sid:
        record(True, sid=sid, name=known["user"], method=METHOD)
        answer("200 OK", "text/html", "<p>welcome", f"X-Next: token?{os.environ['QUERY_STRING']}")


def token():
    sid, known = logged_in()
    if not sid:
        return None
    wanted = json.loads(BODY)
    if wanted != {"for": known["user"], "scopes": ["read", "write"], "number": 1}:
        return refuse("json", got=wanted, name=known["user"])
    known["token"] = secrets.token_urlsafe(24)
    keep(sid, known)
    record(True, sid=sid, name=known["user"])
    return answer("200 OK", "application/json", json.dumps({"data": [{"x/y": {"token": known["token"]}}], "n": None}))


def api():
    sid, known = logged_in()
    if not sid:
        return None
    given = os.environ.get("HTTP_AUTHORIZATION")
    if given != f"Bearer {known.get('token')}":
        return refuse("bearer", got=given, wanted=known.get("token"))
    return_to = QUERY.get("name")
    if return_to != known["user"]:
        return refuse("query", got=return_to, wanted=known["user"])
    record(True, sid=sid, name=known["user"])
    return answer("200 OK", "application/json", "{}")


def upload():
    from email.parser import BytesParser
    from email.policy import HTTP
    sid, known = logged_in()
    if not sid:
        return None
    message = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + KIND.encode() + b"\r\n\r\n" + BODY)
    if message.defects or not message.is_multipart():
        return refuse("multipart", defects=[str(one) for one in message.defects], kind=KIND)
    parts = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        parts[name] = (part.get_filename(), part.get_content_type(), part.get_payload(decode=True), [str(one) for one in part.defects])
    if sorted(parts) != ["comment", "file"] or any(part[3] for part in parts.values()):
        return refuse("parts", got=sorted(parts), defects=[part[3] for part in parts.values()])
    if parts["comment"][2].decode() != f"from {known['user']}":
        return refuse("comment", got=parts["comment"][2].decode(), wanted=known["user"])
    stored = f"{DATA}/uploads/{secrets.token_hex(8)}"
    with open(stored, "wb") as file:
        file.write(parts["file"][2])
    record(True, sid=sid, name=known["user"], stored=stored, filename=parts["file"][0], kind=parts["file"][1])
    return answer("201 Created", "text/plain", "stored")


def basic():
    # Apache has verified the password; it says who it was.
    record(os.environ.get("AUTH_TYPE") == "Basic" and bool(os.environ.get("REMOTE_USER")), name=os.environ.get("REMOTE_USER"))
    answer("200 OK", "text/plain", "you are " + os.environ.get("REMOTE_USER", "nobody"))


STEPS = {("GET", "/login"): login_form, ("POST", "/login"): login, ("GET", "/home"): home, ("POST", "/token"): token,
         ("GET", "/api"): api, ("POST", "/upload"): upload, ("GET", "/basic"): basic}
try:
    STEPS.get((METHOD, PATH), lambda: refuse("no such step"))()
except Exception as error:  # whatever was sent: it must be in the records
    refuse(f"{type(error).__name__}: {error}", body=repr(BODY[:200]))
