"""A self-contained page: styles, scripts and data in one file, nothing fetched, and all user data escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from labelloop.runs.folder import REPORT_MARK


def asset(name: str) -> str:
    """A style sheet or script of the package."""
    return files("labelloop.report").joinpath("web", name).read_text(encoding="utf-8")


def data_block(identity: str, content: Any) -> str:
    """Data for the scripts of a page. No text in it can end the block."""
    text = json.dumps(_finite(content), ensure_ascii=False, allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return f'<script type="application/json" id="{identity}">{text}</script>'


def page(
    title: str,
    body: str,
    *,
    styles: Sequence[str],
    scripts: Sequence[str],
    blocks: Sequence[str] = (),
    connect: bool = False,
) -> str:
    """A complete page. Its content security policy allows only these scripts, and no requests.

    Args:
        title: Escaped here.
        body: HTML, already escaped.
        styles: Names of style sheets of the package.
        scripts: Names of scripts of the package, in order.
        blocks: Blocks from `data_block`.
        connect: Whether the page may send requests to its server.
    """
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy_of(scripts, connect)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="referrer" content="no-referrer">',
            REPORT_MARK,
            f"<title>{escape(title)}</title>",
            *(f"<style>{asset(name)}</style>" for name in styles),
            "</head>",
            f"<body>{body}",
            *blocks,
            *(f"<script>{asset(name)}</script>" for name in scripts),
            "</body>",
            "</html>",
            "",
        ]
    )


def policy_of(scripts: Sequence[str], connect: bool) -> str:
    """The content security policy of a page: its own scripts, and nothing from elsewhere."""
    digests = [base64.b64encode(hashlib.sha256(asset(name).encode()).digest()).decode() for name in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    asks = "connect-src 'self'; " if connect else ""
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; {asks}base-uri 'none';"
        " form-action 'none'"
    )


def bullets(items: Iterable[str]) -> str:
    """A list of items, which are HTML already."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def table(name: str, head: Sequence[str], lines: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table that scrolls where it is too wide. Lines are HTML already; the first cell of each is its heading."""
    heads = "".join(f"<th scope='col'>{escape(each)}</th>" for each in head)
    rows = "".join(
        f"<tr><th scope='row'>{first}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for first, *cells in lines
    )
    return (
        f"<div class='wide' tabindex='0' role='region' aria-label='{escape(name, quote=True)}'><table class='{kind}'>"
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def figures(names: Iterable[str], drawn: Mapping[str, Any]) -> str:
    """Places for the pictures that have data. pictures.js fills them."""
    places = "".join(f"<figure data-picture='{name}'></figure>" for name in names if drawn[name] is not None)
    return f"<div class='pictures'>{places}<noscript>The pictures need JavaScript.</noscript></div>"


def _finite(content: Any) -> Any:
    """The same without NaN and infinity, which JSON does not have."""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    return [_finite(value) for value in content] if isinstance(content, list | tuple) else content
