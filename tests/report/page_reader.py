"""A page as a browser would take it apart, without one."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """Elements, texts and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif self._inside != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == "report-data"))

    @property
    def policy(self) -> str:
        return next(
            str(attributes["content"])
            for tag, attributes in self.elements
            if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
        )

    def allowed(self) -> set[str]:
        return set(re.findall(r"'sha256-([^']+)'", self.policy))

    def digests(self) -> set[str]:
        code = [text for attributes, text in self.scripts if "type" not in attributes]
        return {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in code}


def unpacked(text: str) -> dict[str, Any]:
    """The columns of the table of changes."""
    return json.loads(zlib.decompress(base64.b64decode(text)))
