"""What is wrong with the layout of a page: texts that lie on each other, and anything that sticks out sideways."""

from __future__ import annotations

from chromium import Browser

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
SCHEMES = ("light", "dark")

# Every line of text in sight, cut by the boxes that scroll or hide it; then all pairs of boxes.
OVERLAPS = """
const boxes = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const parent = node.parentElement;
  const shown = parent.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  if (!node.textContent.trim() || !shown) continue;
  if (parent.closest("script, style, noscript, option, .unseen, .skip, [aria-label=tip]")) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  for (const rect of range.getClientRects()) {
    let [left, top, right, bottom] = [rect.left, rect.top, rect.right, rect.bottom];
    for (let box = parent; box && box !== document.body; box = box.parentElement) {
      if (getComputedStyle(box).overflow === "visible") continue;
      const edge = box.getBoundingClientRect();
      [left, top] = [Math.max(left, edge.left), Math.max(top, edge.top)];
      [right, bottom] = [Math.min(right, edge.right), Math.min(bottom, edge.bottom)];
    }
    const high = (bottom - top) * 0.2; // a letter does not fill its line
    if (right - left <= 3 || bottom - top <= 5) continue;
    const text = node.textContent.trim().slice(0, 30);
    boxes.push({ left: left + 1, right: right - 1, top: top + high, bottom: bottom - high, node, text });
  }
}
const raised = (node) => {
  let box = node.parentElement;
  while (box && !["sticky", "fixed"].includes(getComputedStyle(box).position)) box = box.parentElement;
  return box;
};
const found = [];
boxes.sort((a, b) => a.top - b.top);
for (let i = 0; i < boxes.length; i++) {
  for (let j = i + 1; j < boxes.length && boxes[j].top < boxes[i].bottom; j++) {
    const [a, b] = [boxes[i], boxes[j]];
    const cross = a.node !== b.node && a.left < b.right && b.left < a.right;
    const turned = [a, b].every((each) => each.node.parentElement.closest("[transform*=rotate]")); // slanted names
    if (cross && !turned && raised(a.node) === raised(b.node)) found.push(`${a.text} / ${b.text}`);
  }
}
return { found, looked: boxes.length };
"""

OUTSIDE = """
const scrolls = (node) => {
  let box = node.parentElement;
  while (box !== document.body && getComputedStyle(box).overflowX === "visible") box = box.parentElement;
  return box !== document.body;
};
const found = [], wide = document.documentElement.scrollWidth;
if (wide > innerWidth) found.push(`the page is ${wide} wide in ${innerWidth}`);
for (const node of document.querySelectorAll("body *")) {
  const rect = node.getBoundingClientRect();
  if (!rect.width || rect.right <= innerWidth + 1 || !node.checkVisibility()) continue;
  if (scrolls(node) || node.closest("svg, .unseen, .skip")) continue;
  found.push(`${node.tagName} ${node.className} ${node.textContent.slice(0, 30)}`);
}
return found;
"""


def overlaps(browser: Browser) -> list[str]:
    """Pairs of texts that lie on each other."""
    result = browser.run(OVERLAPS)
    assert result["looked"] > 10  # it looked at something
    return result["found"]


def sticking_out(browser: Browser) -> list[str]:
    """What is wider than the window."""
    return browser.run(OUTSIDE)
