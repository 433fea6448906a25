"""Fifty reviewers at once on the review page's server, for a bounded time on this machine: is any decision lost?

    python benchmarks/review_load.py [--reviewers 50] [--seconds 20] [--store evidence/review_load.json]

Every reviewer has a connection of their own, asks for the next row and answers it, as fast as the server goes. A
decision counts when the server confirmed it; afterwards each must be in reviews.jsonl, exactly once.
"""

from __future__ import annotations

import argparse
import http.client
import json
import tempfile
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

import numpy as np
from report_time import ROOT, made_run

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reviewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--store", type=Path, default=ROOT / "evidence" / "review_load.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
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
        "versions": versions(),
    }
    print(json.dumps(found, indent=1))
    options.store.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert found["lost"] == 0, f"{found['lost']} decisions were lost"


if __name__ == "__main__":
    main()
