"""The server: only for this machine, only with the token, and only what belongs to the run."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import stat
import threading
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest
from page_reader import Page
from reported_runs import made_run

from labelloop.cli import main
from labelloop.errors import UsageError
from labelloop.report.html import write_report
from labelloop.report.review.server import MOST_CONNECTIONS, TOKEN_HEADER, ReviewServer
from labelloop.report.review.session import Session
from labelloop.runs.reviews import read_answers
from labelloop.runs.survey import survey


@pytest.fixture
def server(tmp_path):
    folder = made_run(tmp_path / "run")
    write_report([folder])
    (folder / "secret.txt").write_text("not of the run", encoding="utf-8")
    made = ReviewServer(Session(survey(folder), range(1, 5)), lambda: ("all is well", folder), reviewer='"><b>ann')
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def ask(server, method, path, body=None, token=True, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        named[TOKEN_HEADER] = server.token
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, named)
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply, json.loads(text) if reply.getheader("Content-Type") == "application/json" else text


def decision(row, key="a-key-of-its-own"):
    return {"reviewer": "ann", "tab": "1", "decisions": [{"row": row, "action": "unsure", "key": key}]}


def test_the_page_needs_the_token_of_the_address(server):
    path = server.address.split(str(server.server_port))[1]
    reply, _ = ask(server, "GET", path, token=False)
    assert (reply.status, reply.getheader("Location")) == (303, "/")  # out of the address, into a cookie
    cookie = reply.getheader("Set-Cookie")
    assert all(part in cookie for part in ("HttpOnly", "SameSite", f"labelloop-{server.server_port}="))
    reply, text = ask(server, "GET", "/", token=False, Cookie=cookie.split(";")[0])
    assert reply.status == 200
    header = reply.getheader("Content-Security-Policy")
    assert "frame-ancestors 'none'" in header
    page = Page(text)
    assert page.policy in header
    assert page.digests() == page.allowed()
    assert "connect-src 'self'" in page.policy
    assert not [tag for tag, _ in page.elements if tag == "b"]  # the name of the reviewer is only text
    assert (reply.getheader("Cache-Control"), reply.getheader("X-Frame-Options")) == ("no-store", "DENY")
    for wrong in ("/", "/?token=", "/?token=guess", path + "x"):
        assert ask(server, "GET", wrong, token=False)[0].status == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "evil.example:80", ""])
def test_other_hosts_are_refused(server, host):
    assert ask(server, "GET", "/api/state?reviewer=ann", Host=host)[0].status == 403


def test_other_origins_are_refused(server):
    ours = f"http://127.0.0.1:{server.server_port}"
    assert ask(server, "POST", "/api/decide", decision(1), Origin=ours)[0].status == 200
    for theirs in ("http://evil.example", "null", f"https://127.0.0.1:{server.server_port}", "http://127.0.0.1:1"):
        assert ask(server, "POST", "/api/decide", decision(2, "another-key"), Origin=theirs)[0].status == 403
    assert ask(server, "GET", "/api/state?reviewer=ann", Sec_Fetch_Site="cross-site")[0].status == 403
    assert len(read_answers(server.session.folder)[0]) == 1


def test_a_decision_wants_the_token_in_its_header(server):
    reply, _ = ask(server, "POST", f"/api/decide?token={server.token}", decision(1), token=False)
    assert reply.status == 403
    assert read_answers(server.session.folder)[0] == []


@pytest.mark.parametrize(
    "path", ["/secret.txt", "/../run/run.json", "/labels.parquet", "/api/", "/refitted", "//etc/passwd"]
)
def test_nothing_else_is_served(server, path):
    reply, found = ask(server, "GET", path + "?reviewer=ann")
    assert (reply.status, found["error"]) == (404, "there is nothing here")


def test_a_review_over_http(server):
    _, found = ask(server, "GET", "/api/next?reviewer=ann&tab=1&count=2")
    assert [row["row"] for row in found["rows"]] == [1, 2]
    reply, found = ask(server, "POST", "/api/decide", decision(1))
    assert (reply.status, found["kept"], found["state"]["mine"]) == (200, 1, 1)
    _, found = ask(server, "POST", "/api/undo", {"reviewer": "ann", "tab": "1"})
    assert ([row["row"] for row in found["rows"]], found["state"]["mine"]) == ([1], 0)
    assert ask(server, "POST", "/api/undo", {"reviewer": "ann", "keys": "all"})[0].status == 400
    _, found = ask(server, "GET", "/api/next?reviewer=ann&tab=1&queue=estimate")
    assert "given" not in found["rows"][0]  # random rows are blind, whatever the page asks for
    assert ask(server, "GET", "/api/disputes?reviewer=ann")[1] == {"rows": []}
    assert ask(server, "GET", "/api/people?reviewer=ann")[1]["pairs"] == []
    assert ask(server, "GET", "/api/state?reviewer=ann&goal=0.5")[1]["goal"]["share"] == 0.5
    _, found = ask(server, "POST", "/api/refit", {"reviewer": "ann"})
    assert (found["summary"], found["report"]) == ("all is well", True)
    assert ask(server, "GET", "/refitted")[0].status == 200
    assert ask(server, "GET", "/report")[0].status == 200
    reply, text = ask(server, "GET", "/api/export")
    assert reply.getheader("Content-Type") == "text/csv; charset=utf-8"
    assert text.startswith("id,given_label,corrected_label,corrected_confidence,clean_label,disputed")
    assert ask(server, "GET", "/api/pairs?reviewer=ann")[1]["pairs"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"reviewer": "ann", "decisions": []}, "1 to 100 decisions"),
        ({"reviewer": "ann", "decisions": [7]}, "cannot be read"),
        ({"decisions": [{}]}, "your name"),
        ([], "cannot be read"),
        (decision(99), "there is no row 99"),
    ],
)
def test_bad_requests_are_told_why(server, body, why):
    reply, found = ask(server, "POST", "/api/decide", body)
    assert reply.status == 400
    assert why in found["error"]


def test_too_much_and_not_json(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest("POST", "/api/decide")
    connection.putheader(TOKEN_HEADER, server.token)
    connection.putheader("Content-Length", str(10**9))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("POST", "/api/decide", "{not json", {TOKEN_HEADER: server.token})
    assert connection.getresponse().status == 400
    connection.close()


def test_a_run_that_cannot_be_refitted(server):
    server.refit = None
    reply, found = ask(server, "POST", "/api/refit", {"reviewer": "ann"})
    assert (reply.status, "does not store what a refit needs" in found["error"]) == (400, True)
    assert "disabled" in ask(server, "GET", "/")[1]


def test_a_refit_that_fails_is_said(server):
    def fail() -> tuple[str, Path]:
        raise UsageError("nobody has decided anything")

    server.refit = fail
    reply, found = ask(server, "POST", "/api/refit", {"reviewer": "ann"})
    assert (reply.status, found["error"]) == (400, "nobody has decided anything")
    assert not server.refitting.locked()


def test_a_cookie_decides_only_for_its_own_page(server):
    cookie = {"Cookie": f"{server.cookie}={server.token}"}
    own = {"Origin": f"http://127.0.0.1:{server.server_port}"}
    for headers, status in (
        (cookie, 403),  # a POST that no page of ours sent
        (cookie | {"Origin": "http://evil.example"}, 403),
        (cookie | {"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Cookie": f"{server.cookie}=guess"} | own, 403),
        (own, 403),
        (cookie | own, 200),
    ):
        body = decision(1, f"a-key-of-{len(headers)}-{status}")
        assert ask(server, "POST", "/api/decide", body, token=False, **headers)[0].status == status
    wanted = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert ask(server, "GET", "/", token=False, **cookie, **wanted)[0].status == 200  # from the file that --open opens
    assert ask(server, "GET", "/api/state?reviewer=ann", token=False, **cookie, **wanted)[0].status == 403


def test_a_full_disk_is_answered_and_the_connection_goes_on(server, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("labelloop.report.review.session.append_answers", full)
        reply, found = ask(server, "POST", "/api/decide", decision(1))
        assert (reply.status, "disk is full" in found["error"]) == (507, True)
        patch.setattr("labelloop.report.review.session.append_answers", lambda *_: 1 / 0)
        assert ask(server, "POST", "/api/decide", decision(1))[0].status == 500
    assert ask(server, "POST", "/api/decide", decision(1))[0].status == 200


def test_nested_brackets_and_odd_lengths_are_refused(server):
    for body in ("[" * 100_000, '{"a":' * 50_000, "9" * 5000, "\ud800"):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.request("POST", "/api/decide", body.encode("utf-8", "replace"), {TOKEN_HEADER: server.token})
        reply = connection.getresponse()
        assert (reply.status, reply.getheader("Content-Type")) == (400, "application/json")
        connection.close()


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\nX: ", b"POST /api/undo HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"]
)
def test_connections_are_capped_and_those_that_dawdle_make_room(server, said):
    """One that says nothing, or never ends its request, keeps nobody out; nor does a tab that is left open."""
    held = [socket.create_connection(("127.0.0.1", server.server_port), timeout=10) for _ in range(MOST_CONNECTIONS)]
    for one in held:
        one.sendall(said)
    for _ in range(3):
        assert ask(server, "GET", "/api/state?reviewer=ann")[0].status == 200
    assert threading.active_count() < MOST_CONNECTIONS + 20
    assert held[0].recv(100) == b""
    tabs = [
        http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10) for _ in range(MOST_CONNECTIONS + 6)
    ]
    for tab in tabs:
        tab.request("GET", "/api/state?reviewer=ann", headers={TOKEN_HEADER: server.token})
        reply = tab.getresponse()
        assert (reply.status, len(reply.read()) > 0) == (200, True)
    for one in (*held, *tabs):
        one.close()


def test_a_connection_that_is_answered_is_never_closed(server, monkeypatch):
    """With as many answers under way as there may be, another one has to wait."""
    go_on = threading.Event()
    monkeypatch.setattr(server.session, "state", lambda *_: go_on.wait(10) and {})
    server._free = threading.BoundedSemaphore(1)  # never put back: a thread may still release it after this test
    replies = []
    asking = threading.Thread(target=lambda: replies.append(ask(server, "GET", "/api/state?reviewer=ann")[0].status))
    asking.start()
    while server._free._value or server.waiting:
        pass
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as one_more:
        assert b"503" in one_more.recv(100)
    go_on.set()
    asking.join()
    assert replies == [200]


def test_decisions_and_the_token_are_private_and_the_same_after_a_restart(server):
    folder = server.session.folder
    ask(server, "POST", "/api/decide", decision(1))
    for name in ("reviews.jsonl", ".review.json"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    before = (server.server_port, server.token)
    second = ReviewServer(server.session)  # the port is taken: another one, and the same token
    assert second.token == server.token
    second.server_close()
    server.shutdown()
    server.server_close()
    (folder / ".review.json").chmod(0o600)
    content = json.loads((folder / ".review.json").read_text())
    (folder / ".review.json").write_text(json.dumps(content | {"port": before[0]}))
    third = ReviewServer(server.session)
    assert (third.server_port, third.token) == before
    third.server_close()
    (folder / ".review.json").write_text(json.dumps(content | {"folder": "of a stranger"}))
    fourth = ReviewServer(server.session)
    assert fourth.token != before[1]
    fourth.server_close()
    (folder / ".review.json").chmod(0o644)
    fifth = ReviewServer(server.session)
    assert fifth.token != fourth.token
    fifth.server_close()


def test_the_token_is_not_on_the_command_line_of_a_browser(monkeypatch, tmp_path):
    """Other users can read command lines: the browser gets a file that only this user can read, and it goes away."""
    opened = []

    def open_page(address):
        path = Path(unquote(urlsplit(address).path))
        opened.append((address, path, path.read_text(), stat.S_IMODE(path.stat().st_mode)))

    def end():
        raise KeyboardInterrupt

    made = SimpleNamespace(address="http://127.0.0.1:1/?token=a-secret", serve_forever=end, server_close=lambda: None)
    monkeypatch.setattr("webbrowser.open", open_page)
    monkeypatch.setattr("labelloop.workflows.review.open_review", lambda *_: made)
    assert main(["review", str(tmp_path), "--open"]) == 0
    ((address, path, content, mode),) = opened
    assert address.startswith("file:")
    assert "a-secret" not in address
    assert "a-secret" in content
    assert (mode, path.exists()) == (0o600, False)
