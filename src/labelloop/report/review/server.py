"""The page of a review: its frame as HTML; the rest is review.js."""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable, Mapping
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from labelloop.errors import DataError, UsageError
from labelloop.report.page import data_block, page
from labelloop.report.review.session import Session, seat_of
from labelloop.runs.folder import REPORT

BODY = """
<header class="bar-top">
<h1>{title}</h1>
<label>Your name <input id="reviewer" maxlength="60" autocomplete="off" value="{reviewer}"></label>
<nav aria-label="Ways to review"><button type="button" id="show-one" aria-pressed="true">One row (1)</button>
<button type="button" id="show-grid" aria-pressed="false">Grid of a class pair (2)</button></nav>
<p class="links"><a id="export" href="#" download="reviews.csv">Export as CSV</a> <a id="report" href="#">Report</a>
<button type="button" id="refit"{refit}>Refit with the decisions</button></p>
</header>
<main>
<section id="progress" aria-label="Progress"><div id="numbers" role="status"></div>
<div id="message" role="alert"></div></section>
<section id="one" aria-label="One row">
<div id="card" tabindex="-1"></div>
<div id="keys" role="group" aria-label="Answers"></div>
<div id="chooser" hidden><label for="search">Another class: type to search, press Enter for the first match</label>
<input id="search" role="combobox" aria-expanded="true" aria-controls="found" autocomplete="off">
<ul id="found" role="listbox" aria-label="Classes"></ul></div>
<aside id="near" aria-label="Nearest clean rows"></aside>
</section>
<section id="many" aria-label="Grid of a class pair" hidden></section>
</main>
"""

HOST = "127.0.0.1"
LARGEST = 1 << 20  # bytes of a request
MOST_ROWS = 100  # that one request may ask for
TOKEN_HEADER = "X-LabelLoop-Token"

Refit = Callable[[], tuple[str, Path]]  # a summary for people, and the folder of the new run
Reply = tuple[str, bytes]  # type and content


def review_page(session: Session, reviewer: str, can_refit: bool) -> str:
    """The whole page of a review, as HTML."""
    name = session.run.name
    body = BODY.format(
        title=f"Review of {escape(name)}",
        reviewer=escape(reviewer, quote=True),
        refit="" if can_refit else " disabled title='This run does not store what a refit needs'",
    )
    return page(
        f"Review of {name} · LabelLoop",
        body,
        styles=("report.css", "review.css"),
        scripts=("unpack.js", "review.js"),
        blocks=[data_block("review-data", {"classes": session.classes})],
        connect=True,
    )


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
        port: The port; 0 chooses a free one.
        reviewer: The initial name of the reviewer.
    """

    daemon_threads = True
    request_queue_size = 128  # connections that may wait

    def __init__(self, session: Session, refit: Refit | None = None, port: int = 0, reviewer: str = "") -> None:
        super().__init__((HOST, port), _Handler)
        self.session, self.refit, self.reviewer = session, refit, reviewer
        self.token = secrets.token_urlsafe(24)
        self.refitting = threading.Lock()
        self.refitted: Path | None = None
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

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
            parts = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            self._check(query)
            self._data = json.loads(body) if body else {}
            kind, content = make(parts.path, query)
            self._send(HTTPStatus.OK, kind, content)
        except Refused as refused:
            self._send_json(refused.status, {"error": str(refused)})
        except (UsageError, DataError) as error:
            self._send_json(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except (ValueError, AttributeError, TypeError) as error:
            self._send_json(HTTPStatus.BAD_REQUEST, {"error": f"the request cannot be read ({error})"})
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
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

    def _check(self, query: Mapping[str, str]) -> None:
        """Refuses other hosts, other origins and requests without the token."""
        if self.headers.get("Host") not in self.server.hosts:
            raise Refused(HTTPStatus.FORBIDDEN, "this server is for this machine only")
        origin = self.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.server.hosts}:
            raise Refused(HTTPStatus.FORBIDDEN, "this server does not answer other pages")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Refused(HTTPStatus.FORBIDDEN, "this server does not answer other pages")
        token = self.headers.get(TOKEN_HEADER) or ("" if self.command == "POST" else query.get("token", ""))
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise Refused(HTTPStatus.FORBIDDEN, "open the address that `labelloop review` printed, with its token")

    def _get(self, path: str, query: Mapping[str, str]) -> Reply:
        session = self.server.session
        if path == "/":
            page = review_page(session, self.server.reviewer, self.server.refit is not None)
            return "text/html; charset=utf-8", page.encode()
        if path == "/api/export":
            return "text/csv; charset=utf-8", session.as_csv().encode()
        if path == "/report":
            return "text/html; charset=utf-8", self._report(session.folder)
        if path == "/refitted" and self.server.refitted is not None:
            return "text/html; charset=utf-8", self._report(self.server.refitted)
        seat = seat_of(query.get("reviewer"), query.get("tab")) if path.startswith("/api/") else None
        if path == "/api/state" and seat:
            return _json(session.state(seat.reviewer))
        if path == "/api/next" and seat:
            return _json({"rows": session.next_rows(seat, _count(query)), "state": session.state(seat.reviewer)})
        if path == "/api/pairs" and seat:
            return _json({"pairs": session.pairs()})
        if path == "/api/grid" and seat:
            rows = session.grid(seat, query.get("given", ""), query.get("corrected", ""), _count(query))
            return _json({"rows": rows})
        raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")

    def _post(self, path: str, query: Mapping[str, str]) -> Reply:
        session, data = self.server.session, self._data
        seat = seat_of(data.get("reviewer"), data.get("tab"))
        if path == "/api/decide":
            decisions = data.get("decisions")
            if not isinstance(decisions, list) or not 0 < len(decisions) <= MOST_ROWS:
                raise UsageError(f"send a list of 1 to {MOST_ROWS} decisions")
            new = session.decide(seat, decisions)
            return _json({"kept": new, "state": session.state(seat.reviewer)})
        if path == "/api/undo":
            row = session.undo(seat, data.get("key"))
            return _json({"row": row, "state": session.state(seat.reviewer)})
        if path == "/api/refit":
            return _json(self._refit())
        raise Refused(HTTPStatus.NOT_FOUND, "there is nothing here")

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
            return (folder / REPORT).read_bytes()
        except FileNotFoundError:
            raise Refused(HTTPStatus.NOT_FOUND, f"write it first: labelloop report {folder}") from None

    def _send_json(self, status: HTTPStatus, content: Mapping[str, Any]) -> None:
        self._send(status, *_json(content))

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        if kind.startswith("text/csv"):
            self.send_header("Content-Disposition", 'attachment; filename="reviews.csv"')
        self.end_headers()
        self.wfile.write(content)


def _json(content: Any) -> Reply:
    return "application/json", json.dumps(content, ensure_ascii=False).encode()


def _count(query: Mapping[str, str]) -> int:
    text = query.get("count", "1")
    return min(MOST_ROWS, max(1, int(text))) if text.isdecimal() else 1
