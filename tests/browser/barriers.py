"""What axe-core finds on a page."""

from __future__ import annotations

from chromium import Browser


def serious_barriers(browser: Browser, axe: str) -> list[str]:
    """The serious and critical findings, one line each."""
    browser.run(axe + "; window.axe = axe;")  # by the driver, outside the page's own policy
    browser.run("window.found = null; axe.run(document).then((result) => { window.found = result; })")
    browser.wait("window.found")
    lines = browser.run(
        "return window.found.violations.filter((each) => ['serious', 'critical'].includes(each.impact)).map((each) =>"
        " each.id + ': ' + each.nodes.slice(0, 3).map((node) => node.html + ' ' + node.failureSummary).join(' | '))"
    )
    assert browser.run("return window.found.passes.length") > 10  # it looked at something
    return lines
