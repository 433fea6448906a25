"""A real browser for tests: Debian's chromium, driven through its chromedriver by the WebDriver protocol."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
)  # fmt: skip
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "ArrowDown": "\ue015", "PageDown": "\ue00f"}


def missing() -> str | None:
    """What keeps a browser from being had here, or None."""
    for name, package in (("chromium", "chromium"), ("chromedriver", "chromium-driver")):
        if shutil.which(name) is None:
            return f"there is no {name} here: apt-get install {package}"
    return None


class Browser:
    """One window. Use it as a context manager.

    Args:
        profile: An empty folder for the browser's own files.
        width: Of the window.
        height: Of the window.
    """

    def __init__(self, profile: Path, width: int = 1280, height: int = 900) -> None:
        self._profile, self._size = profile, (width, height)

    def __enter__(self) -> Browser:
        log = self._profile / "chromedriver.log"
        self._profile.mkdir(parents=True, exist_ok=True)
        home = {**os.environ, "HOME": str(self._profile)}
        with log.open("wb") as file:
            self._driver = subprocess.Popen(
                ["chromedriver", "--port=0"], stdout=file, stderr=subprocess.STDOUT, env=home
            )
        self._base = f"http://127.0.0.1:{_port(log)}"
        width, height = self._size
        flags = [*FLAGS, f"--user-data-dir={self._profile / 'data'}", f"--window-size={width},{height}"]
        wanted = {
            "goog:chromeOptions": {"args": flags, "binary": shutil.which("chromium")},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"
        self._call("POST", f"{self._session}/timeouts", {"script": 60_000, "pageLoad": 120_000})
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._call("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait(20)

    def reset(self) -> None:
        """An empty page of the first size, in light colours, and nothing in the logs."""
        self.open("about:blank")
        self.resize(*self._size)
        self._command("Emulation.setEmulatedMedia", {"media": "", "features": []})
        self.problems()
        self.requests()

    def open(self, address: str) -> None:
        self._call("POST", f"{self._session}/url", {"url": address})

    def run(self, code: str, *arguments: Any) -> Any:
        """What a function body returns in the page."""
        return self._call("POST", f"{self._session}/execute/sync", {"script": code, "args": list(arguments)})

    def wait(self, code: str, seconds: float = 60.0) -> Any:
        """Waits until an expression is true in the page, and returns it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := self.run(f"return {code}"):
                return found
            time.sleep(0.1)
        raise AssertionError(f"never true: {code}; the page says {self.run('return document.body.innerText')[:2000]}")

    def press(self, *keys: str) -> None:
        """Presses keys, one after the other, wherever the focus is."""
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._call("POST", f"{self._session}/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def resize(self, width: int, height: int) -> None:
        """Makes the page as wide and high as this, also as narrow as a phone."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", size)

    def colours(self, scheme: str) -> None:
        """Asks pages to be "light" or "dark" from now on."""
        wanted = [{"name": "prefers-color-scheme", "value": scheme}]
        self._command("Emulation.setEmulatedMedia", {"features": wanted})

    def media(self, kind: str) -> None:
        """Shows pages as on a "screen", or as in "print"."""
        self._command("Emulation.setEmulatedMedia", {"media": kind})

    def _command(self, name: str, parameters: dict[str, Any]) -> None:
        self._call("POST", f"{self._session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def click(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).click()", selector)

    def set_value(self, selector: str, value: str) -> None:
        """Sets a field as a person would: with its input and change events."""
        self.run(
            "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
            "field.dispatchEvent(new Event('input', {bubbles: true}));"
            "field.dispatchEvent(new Event('change', {bubbles: true}));",
            selector,
            value,
        )

    def problems(self) -> list[str]:
        """What the console holds against the page since it was last asked."""
        found = self._call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [line["message"] for line in found if line["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """The addresses that were asked for since it was last asked, data inside the page aside."""
        found = self._call("POST", f"{self._session}/se/log", {"type": "performance"})
        events = [json.loads(line["message"])["message"] for line in found]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [
            address for address in asked if not address.startswith(("data:", "blob:", "chrome:", "chrome-untrusted:"))
        ]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", f"{self._session}/screenshot")))

    def printed(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode(self._call("POST", f"{self._session}/print", {"background": False}))

    def _call(self, method: str, path: str, content: Any = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=180) as reply:
                return json.loads(reply.read())["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.loads(error.read())["value"]["message"]) from None


def _port(log: Path) -> int:
    for _ in range(600):
        if found := re.search(r"started successfully on port (\d+)", log.read_text(errors="replace")):
            return int(found[1])
        time.sleep(0.05)
    raise AssertionError(f"chromedriver did not start: {log.read_text(errors='replace')}")
