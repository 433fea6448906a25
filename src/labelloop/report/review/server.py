"""The local server of the review page: only for this machine, with a token.

The frame of the page is review.html; the rest is review.js.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import secrets
import shlex
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from html import escape
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from labelloop.errors import DataError, UsageError
from labelloop.report.page import asset, data_block, page, policy_of
from labelloop.report.review.queues import read_filter
from labelloop.report.review.session import GOAL, Seat, Session, seat_of
from labelloop.report.review.tally import people
from labelloop.runs.folder import REPORT
from labelloop.runs.reviews import ESTIMATE, IMPROVE
from labelloop.runs.run_json import export_name
from labelloop.trust import file_in, small_file

STYLES = ("design.css", "review.css")
SCRIPTS = ("unpack.js", "review_cards.js", "review_grid.js", "review_people.js", "review.js")

NAME = ".review.json"
LENGTH = 32  # letters of a token

HOST = "127.0.0.1"
LARGEST = 1 << 20  # bytes of a request
MOST_ROWS = 100  # that one request may ask for
TOKEN_HEADER = "X-LabelLoop-Token"
MOST_CONNECTIONS = 64
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
HTML, CSV = "text/html; charset=utf-8", "text/csv; charset=utf-8"
HEADERS = {  # of every reply
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
NOTHING = "there is nothing here"
FULL = (errno.ENOSPC, errno.EDQUOT)
REPORT_POLICY = (  # a stranger may have made the report: its scripts run, but not as part of our page
    "sandbox allow-scripts allow-popups; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
    " img-src data:; base-uri 'none'"
)

Refit = Callable[[], tuple[str, Path]]  # a summary for people, and the folder of the new run
Reply = tuple[str, bytes]  # type and content


def review_page(session: Session, reviewer: str, can_refit: bool) -> str:
    """The whole page of a review, as HTML."""
    title = f"Review of {session.run.name}"
    body = asset("review.html").format(
        title=escape(title),
        reviewer=escape(reviewer, quote=True),
        refit="" if can_refit else " disabled title='This run does not store what a refit needs'",
    )
    exported = f"{shlex.quote(str(session.folder))} --to {export_name(session.run.record.get('source'))}"
    blocks = [data_block("review-data", {"classes": session.classes, "run": exported})]
    return page(f"{title} · LabelLoop", body, styles=STYLES, scripts=SCRIPTS, blocks=blocks, connect=True)


def recall(folder: Path) -> tuple[int, str]:
    """The port and the token that `remember` kept, or no port and a new token.

    A file that others may read, or that came with a copied folder, is not believed: whoever made it knows the token.
    """
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        text, about = small_file(folder / NAME)
        content = json.loads(text)
        port, token = content["port"], content["token"]
        mine = not about.st_mode & 0o077 and (not hasattr(os, "getuid") or about.st_uid == os.getuid())
        right = type(port) is int and 1024 <= port <= 65535 and isinstance(token, str) and len(token) >= LENGTH
        if mine and right and content["folder"] == _identity(folder):
            return port, token
    return 0, secrets.token_urlsafe(LENGTH * 3 // 4)


def remember(folder: Path, port: int, token: str) -> None:
    """Keeps them for the next start, where only this user can read them. Without a writable folder nothing is kept."""
    content = json.dumps({"port": port, "token": token, "folder": _identity(folder)}).encode()
    with suppress(OSError):
        (folder / NAME).unlink(missing_ok=True)
        handle = os.open(folder / NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)


def _identity(folder: Path) -> str:
    """Names this folder on this machine: a copy of it is another one."""
    about = os.stat(folder)
    return f"{about.st_dev}-{about.st_ino} {folder.resolve()}"


class Refused(Exception):
    """A refused request, with its status."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class ReviewServer(ThreadingHTTPServer):
    """Serves one review.

    Args:
        session: The review.
        refit: Fits the correction again with the decisions, or None if the run cannot be refitted.
        port: The port; 0 takes the one that this run had the last time, or a free one.
        reviewer: The initial name of the reviewer.
    """

    daemon_threads = True
    request_queue_size = 128  # connections that may wait

    def __init__(self, session: Session, refit: Refit | None = None, port: int = 0, reviewer: str = "") -> None:
        before, self.token = recall(session.folder)
        try:
            super().__init__((HOST, port or before), _Handler)
        except OSError:
            if port or not before:
                raise
            super().__init__((HOST, 0), _Handler)  # the old one is taken
        self.session, self.refit, self.reviewer = session, refit, reviewer
        self.refitting = threading.Lock()
        self.refitted: Path | None = None
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}
        self.cookie = f"labelloop-{self.server_port}"  # cookies do not know ports
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.waiting: dict[Any, None] = {}  # connections without a whole request, the oldest first
        remember(session.folder, self.server_port, self.token)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread of its own. If there are too many, the oldest that says nothing has to go."""
        if not self._free.acquire(blocking=False) and not self._make_room():
            with suppress(OSError):
                request.sendall(BUSY)
            self.shutdown_request(request)
            return
        self.waiting[request] = None
        super().process_request(request, client_address)

    def _make_room(self) -> bool:
        for oldest in list(self.waiting)[:1]:
            self.waiting.pop(oldest, None)
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
            return self._free.acquire(timeout=1)
        return False

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.waiting.pop(request, None)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a connection that breaks is no event, and errors are answered where they happen."""

    @property
    def address(self) -> str:
        """The address to open in a browser."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer
    protocol_version = "HTTP/1.1"
    server_version = "labelloop"
    sys_version = ""
    timeout = 60  # seconds until a silent connection is closed
    disable_nagle_algorithm = True

    def log_message(self, *parts: Any) -> None:
        """Logs nothing, because the address contains the token."""

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, make: Callable[[str, Mapping[str, str]], Reply]) -> None:
        try:
            body = self._body()
            self.server.waiting.pop(self.connection, None)
            parts = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            if self._check(parts.path, query):
                self._redirect()
            else:
                self._data = json.loads(body) if body else {}
                self._send(HTTPStatus.OK, *make(parts.path, query))
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True
        except Exception as error:  # whatever it is, the page hears of it
            self._send_error(error)
        self.server.waiting[self.connection] = None  # for the next one

    def _send_error(self, error: Exception) -> None:
        status, text = HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"
        if isinstance(error, Refused):
            status, text = error.status, str(error)
        elif isinstance(error, UsageError | DataError):
            status, text = HTTPStatus.BAD_REQUEST, str(error)
        elif isinstance(error, ValueError | AttributeError | TypeError | RecursionError):
            status, text = HTTPStatus.BAD_REQUEST, f"the request cannot be read ({error!s:.200})"
        elif isinstance(error, OSError) and error.errno in FULL:
            status, text = (HTTPStatus.INSUFFICIENT_STORAGE, "the disk is full, so this is not saved; free some space")
        try:
            self._send(status, *_json({"error": text}))
        except OSError:
            self.close_connection = True

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding"):
            self.close_connection = True
            raise Refused(HTTPStatus.NOT_IMPLEMENTED, "send a body with its length")
        text = self.headers.get("Content-Length") or "0"
        length = int(text) if text.isdecimal() and len(text) < 12 else -1
        if not 0 <= length <= LARGEST:
            self.close_connection = True
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request may have at most {LARGEST} bytes")
        return self.rfile.read(length) if length else b""

    def _check(self, path: str, query: Mapping[str, str]) -> bool:
        """Refuses other hosts, other origins and requests without the token.

        Returns:
            Whether the token came in the address, from which a redirect takes it.
        """
        if self.headers.get("Host") not in self.server.hosts:
            raise Refused(HTTPStatus.FORBIDDEN, "this server is for this machine only")
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "none")
        ours = {f"http://{host}" for host in self.server.hosts}
        opens = self.command == "GET" and path == "/" and self.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"
        if (origin is not None and origin not in ours) or (site not in ("none", "same-origin") and not opens):
            raise Refused(HTTPStatus.FORBIDDEN, "this server does not answer other pages")
        said = query.get("token", "") if self.command == "GET" else ""
        if self._is_token(said):
            return path == "/"
        if self._is_token(self.headers.get(TOKEN_HEADER) or ""):
            return False
        by_page = self.command == "GET" or origin in ours or site == "same-origin"
        if not by_page or not self._is_token(self._cookie()):
            raise Refused(HTTPStatus.FORBIDDEN, "open the address that `labelloop review` printed, with its token")
        return False

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.server.token.encode())

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie") or "").get(self.server.cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value

    def _redirect(self) -> None:
        """To the page without the token in its address, which a cookie holds from now on."""
        cookie = f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Lax; Path=/"
        self._send(HTTPStatus.SEE_OTHER, "text/plain", b"", {"Location": "/", "Set-Cookie": cookie})

    def _get(self, path: str, query: Mapping[str, str]) -> Reply:
        session = self.server.session
        if path == "/":
            return HTML, review_page(session, self.server.reviewer, self.server.refit is not None).encode()
        if path == "/api/export":
            return CSV, session.csv().encode()
        if path == "/report":
            return HTML, self._report(session.folder)
        if path == "/refitted" and self.server.refitted is not None:
            return HTML, self._report(self.server.refitted)
        answers: dict[str, Callable[[Seat], Any]] = {
            "/api/state": lambda seat: session.state(seat.reviewer, _goal(query)),
            "/api/next": lambda seat: self._next(seat, query),
            "/api/pairs": lambda seat: {"pairs": session.pairs()},
            "/api/grid": lambda seat: {"rows": session.grid(seat, read_filter(query, session.classes), _count(query))},
            "/api/disputes": lambda seat: {"rows": session.disputes(seat)},
            "/api/people": lambda seat: people(session.tally),
        }
        if path not in answers:
            raise Refused(HTTPStatus.NOT_FOUND, NOTHING)
        return _json(answers[path](seat_of(query.get("reviewer"), query.get("tab"))))

    def _next(self, seat: Seat, query: Mapping[str, str]) -> dict[str, Any]:
        session, queue = self.server.session, ESTIMATE if query.get("queue") == ESTIMATE else IMPROVE
        wanted, blind = read_filter(query, session.classes), query.get("blind") == "1" or queue == ESTIMATE
        rows = session.next_rows(seat, _count(query), queue=queue, wanted=wanted, blind=blind)
        return {"rows": rows, "state": session.state(seat.reviewer, _goal(query))}

    def _post(self, path: str, query: Mapping[str, str]) -> Reply:
        session, data = self.server.session, self._data
        seat, goal = seat_of(data.get("reviewer"), data.get("tab")), _goal(data)
        if path == "/api/decide":
            decisions = data.get("decisions")
            if not isinstance(decisions, list) or not 0 < len(decisions) <= MOST_ROWS:
                raise UsageError(f"send a list of 1 to {MOST_ROWS} decisions")
            new = session.decide(seat, decisions)
            return _json({"kept": len(new), "answers": new, "state": session.state(seat.reviewer, goal)})
        if path == "/api/undo":
            keys = data.get("keys")
            if keys is not None and not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)):
                raise UsageError("send the keys of the answers to take back as a list")
            rows = session.undo(seat, keys, data.get("blind") is True)
            return _json({"rows": rows, "state": session.state(seat.reviewer, goal)})
        if path == "/api/refit":
            return _json(self._refit())
        raise Refused(HTTPStatus.NOT_FOUND, NOTHING)

    def _refit(self) -> dict[str, Any]:
        if self.server.refit is None:
            raise UsageError("this run does not store what a refit needs")
        if not self.server.refitting.acquire(blocking=False):
            raise UsageError("a refit is already running; wait for it")
        try:
            summary, folder = self.server.refit()
        finally:
            self.server.refitting.release()
        self.server.refitted = folder
        return {"summary": summary, "folder": str(folder), "report": (folder / REPORT).exists()}

    def _report(self, folder: Path) -> bytes:
        try:
            return file_in(folder, REPORT).read_bytes()
        except FileNotFoundError:
            raise Refused(HTTPStatus.NOT_FOUND, f"write it first: labelloop report {folder}") from None

    def _send(self, status: HTTPStatus, kind: str, content: bytes, more: Mapping[str, str] | None = None) -> None:
        headers = {"Content-Type": kind, "Content-Length": str(len(content)), **HEADERS, **(more or {})}
        if kind == HTML:
            policy = policy_of(SCRIPTS, connect=True) if urlsplit(self.path).path == "/" else REPORT_POLICY
            headers["Content-Security-Policy"] = f"{policy}; frame-ancestors 'none'"
        if kind == CSV:
            headers["Content-Disposition"] = 'attachment; filename="reviews.csv"'
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _json(content: Any) -> Reply:
    return "application/json", json.dumps(content, ensure_ascii=False).encode()


def _count(query: Mapping[str, str]) -> int:
    text = query.get("count", "1")
    return min(MOST_ROWS, max(1, int(text))) if text.isdecimal() else 1


def _goal(said: Mapping[str, Any]) -> float:
    """The share of right labels that a reviewer wants to show."""
    with suppress(TypeError, ValueError):
        if 0 < (goal := float(said.get("goal", GOAL))) < 1:
            return goal
    return GOAL
