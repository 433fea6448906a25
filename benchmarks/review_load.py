"""Fifty reviewers at once: is any decision lost? One reviewer of a million rows: how long until the next row comes?

    python benchmarks/review_load.py [--reviewers 50] [--seconds 20] [--rows 1000000] [--store FILE]

Every one of the fifty has a connection of their own, asks for the next row and answers it, as fast as the server goes.
A decision counts when the server confirmed it; afterwards each must be in reviews.jsonl, exactly once. The one reviewer
has a run with 10,000 clean rows of 64 features, and answers rows of the plan, random rows and rows behind filters that
were not used before, over HTTP as the page does.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import tempfile
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from report_time import ROOT, made_run

from labelloop.report.review.looks import Neighbours
from labelloop.report.review.server import TOKEN_HEADER, ReviewServer
from labelloop.report.review.session import Session
from labelloop.runs.reviews import read_answers
from labelloop.runs.run_json import versions
from labelloop.runs.survey import survey


def review(server: ReviewServer, name: str, end: float, kept: list[str], waits: list[float], wrong: list[str]) -> None:
    """One reviewer: the next row, an answer, and so on until the end."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    headers = {TOKEN_HEADER: server.token}

    def ask(method: str, path: str, body: str | None = None) -> dict:
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            wrong.append(content.decode())
        return json.loads(content)

    while time.monotonic() < end:
        rows = ask("GET", f"/api/next?reviewer={name}&tab=1")["rows"]
        if not rows:
            break
        key = str(uuid.uuid4())
        answer = {"row": rows[0]["row"], "action": "accept", "key": key}
        started = time.perf_counter()
        found = ask("POST", "/api/decide", json.dumps({"reviewer": name, "tab": "1", "decisions": [answer]}))
        waits.append(time.perf_counter() - started)
        if found.get("kept") == 1:
            kept.append(key)
    connection.close()


def next_row_waits(rows: int, place: Path, turns: int = 100) -> dict[str, Any]:
    """Milliseconds from the question for the next row to its answer, with so many rows."""
    run = survey(made_run(place / "large", rows))
    confidence, clean = run.numbers("corrected_confidence"), run.flags("verified")
    order = np.flatnonzero(~clean)
    order = order[np.argsort(confidence[order], kind="stable")]
    features = np.random.default_rng(0).normal(size=(rows, 64)).astype(np.float16)
    started = time.perf_counter()
    session = Session(run, order, Neighbours(features, np.where(clean, 0, -1)))
    opened = time.perf_counter() - started
    server = ReviewServer(session)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)

    def ask(method: str, path: str, body: str | None = None) -> tuple[dict[str, Any], float, float]:
        begun, busy = time.perf_counter(), time.process_time()
        connection.request(method, path, body, {TOKEN_HEADER: server.token})
        content = connection.getresponse().read()
        return json.loads(content), 1000 * (time.perf_counter() - begun), 1000 * (time.process_time() - busy)

    waits: dict[str, list[float]] = {}
    busy: dict[str, list[float]] = {}  # of the processor, page and server together: other work does not count
    for name, query in {
        "plan": lambda k: "",
        "random": lambda k: "&queue=estimate",
        "new class filter": lambda k: f"&given=class+{k % 10}&least={0.3 + k / 500:.3f}",
        "new text filter": lambda k: f"&words=row-{k:03d}",
    }.items():
        for k in range(turns):
            found, took, worked = ask("GET", f"/api/next?reviewer=ann&tab=1{query(k)}")
            waits.setdefault(name, []).append(took)
            busy.setdefault(name, []).append(worked)
            if not found["rows"]:
                continue
            one = {"row": found["rows"][0]["row"], "action": "accept", "key": str(uuid.uuid4())}
            one |= {"queue": "estimate"} if name == "random" else {}
            ask("POST", "/api/decide", json.dumps({"reviewer": "ann", "tab": "1", "decisions": [one]}))
    server.shutdown()
    server.server_close()

    def quantiles(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
        return {
            k: {q: round(float(np.quantile(each, float(q))), 1) for q in ("0.5", "0.95")} for k, each in times.items()
        }

    found = {"next_row_ms": quantiles(waits), "processor_ms": quantiles(busy)}
    return {"rows": rows, "turns": turns, "open_seconds": round(opened, 1), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reviewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--store", type=Path, default=ROOT / "evidence" / "review_load.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        large = next_row_waits(options.rows, Path(place))
        print(json.dumps(large, indent=1), flush=True)
        run = survey(made_run(Path(place) / "run", 50_000))
        confidence = run.numbers("corrected_confidence")
        order = np.argsort(confidence, kind="stable")[:45_000]
        server = ReviewServer(Session(run, order.tolist()))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kept: list[str] = []
        waits: list[float] = []
        wrong: list[str] = []
        end = time.monotonic() + options.seconds
        people = [
            threading.Thread(target=review, args=(server, f"reviewer-{k}", end, kept, waits, wrong))
            for k in range(options.reviewers)
        ]
        for person in people:
            person.start()
        for person in people:
            person.join()
        server.shutdown()
        server.server_close()
        written = Counter(answer.key for answer in read_answers(run.path)[0])
    found = {
        "reviewers": options.reviewers,
        "seconds": options.seconds,
        "confirmed": len(kept),
        "lost": sum(written[key] != 1 for key in kept),
        "unconfirmed_in_file": len(set(written) - set(kept)),
        "refused": len(wrong),
        "wait_ms": {
            name: round(1000 * float(np.quantile(waits, q)), 1) for name, q in (("median", 0.5), ("p99", 0.99))
        },
        "large": large | {"load_average": round(os.getloadavg()[0], 1), "nice": os.nice(0)},
        "versions": versions(),
    }
    print(json.dumps(found, indent=1))
    options.store.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert found["lost"] == 0, f"{found['lost']} decisions were lost"


if __name__ == "__main__":
    main()
