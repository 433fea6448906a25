"""The page of a review: its frame as HTML; the rest is review.js."""

from __future__ import annotations

from html import escape

from labelloop.report.page import data_block, page, policy_of
from labelloop.report.review.session import Session

SCRIPTS = ("unpack.js", "review.js")
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
        scripts=SCRIPTS,
        blocks=[data_block("review-data", {"classes": session.classes})],
        connect=True,
    )


def review_policy() -> str:
    """The content security policy that the server sends with the page, which no frame may hold."""
    return policy_of(SCRIPTS, connect=True) + "; frame-ancestors 'none'"
