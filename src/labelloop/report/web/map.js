"use strict";
// The map of the rows: a dot for each, coloured by class, with a ring where the label was changed. A line drawn around
// dots, or a circle moved by the arrow keys, leaves only their rows in the table.
LabelLoop.map = (data) => {
  const { make, count } = LabelLoop;
  const found = data.pictures.map, figure = document.querySelector("figure[data-picture=map]");
  if (!found || !figure) return;
  const place = figure.querySelector(".chart");
  const column = (name, kind) => new kind(LabelLoop.bytes(found[name]).buffer);
  const row = column("row", Uint32Array), x = column("x", Uint16Array), y = column("y", Uint16Array);
  const label = column("label", Uint16Array), changed = column("changed", Uint8Array);
  const colourOf = LabelLoop.colourOf(data), largest = data.by_size.slice(0, LabelLoop.COLOURS.length);
  const MARGIN = 12;

  const present = new Set(label), common = largest.filter((code) => present.has(code));
  const canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": "Map of the rows. Arrow keys move a circle, plus and minus change its size, Enter shows its rows, Escape shows all." });
  const legend = make("div", { class: "legend" }, ...common.map((code) => make("span", {}, make("i", { style: `background:var(${colourOf(code)})` }), data.classes[code])),
    present.size > common.length ? make("span", {}, make("i", { style: "background:var(--soft)" }), `${present.size - common.length} other classes`) : null,
    changed.includes(1) ? make("span", {}, "○ changed") : null);
  const status = make("p", { class: "status", role: "status" });
  place.replaceChildren(legend, make("div", { class: "map-place" }, canvas), status);

  let path = [], circle = null, width = 0, height = 0, picture = null;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const across = (k) => MARGIN + (x[k] / 65535) * (width - 2 * MARGIN);
  const down = (k) => height - MARGIN - (y[k] / 65535) * (height - 2 * MARGIN);

  function paintDots() {
    const scale = devicePixelRatio || 1, style = getComputedStyle(canvas);
    width = canvas.clientWidth;
    height = Math.min(520, Math.max(280, width * 0.5));
    canvas.style.height = `${height}px`;
    canvas.width = width * scale;
    canvas.height = height * scale;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    const colour = new Map([...present].map((code) => [code, style.getPropertyValue(colourOf(code))]));
    const ink = style.getPropertyValue("--ink");
    const radius = row.length > 20000 ? 1.2 : row.length > 3000 || width < 500 ? 1.8 : 2.6;
    const ring = radius + (width < 500 ? 1.5 : 2.5);
    pen.clearRect(0, 0, width, height);
    pen.globalAlpha = row.length > 20000 ? 0.4 : 0.65;
    for (let k = 0; k < row.length; k++) {
      pen.fillStyle = colour.get(label[k]);
      pen.fillRect(across(k) - radius, down(k) - radius, 2 * radius, 2 * radius);
    }
    pen.globalAlpha = 1;
    pen.strokeStyle = ink;
    pen.lineWidth = width < 500 || row.length > 3000 ? 0.7 : 1;
    pen.beginPath();
    for (let k = 0; k < row.length; k++) {
      if (!changed[k]) continue;
      pen.moveTo(across(k) + ring, down(k));
      pen.arc(across(k), down(k), ring, 0, 7);
    }
    pen.stroke();
    picture = pen.getImageData(0, 0, canvas.width, canvas.height);
  }

  function paint() {
    pen.putImageData(picture, 0, 0);
    pen.strokeStyle = getComputedStyle(canvas).getPropertyValue("--focus");
    pen.lineWidth = 2;
    pen.beginPath();
    if (circle) pen.arc(circle.x, circle.y, circle.r, 0, 7);
    path.forEach(([a, b], k) => (k ? pen.lineTo(a, b) : pen.moveTo(a, b)));
    if (path.length > 2) pen.closePath();
    pen.stroke();
  }

  function inside(a, b) {
    if (circle) return (a - circle.x) ** 2 + (b - circle.y) ** 2 <= circle.r ** 2;
    let within = false;
    for (let i = 0, j = path.length - 1; i < path.length; j = i++) {
      const [ax, ay] = path[i], [bx, by] = path[j];
      if (ay > b !== by > b && a < ((bx - ax) * (b - ay)) / (by - ay) + ax) within = !within;
    }
    return within;
  }

  function choose() {
    const rows = new Set();
    let moved = 0;
    for (let k = 0; k < row.length; k++) {
      if (!inside(across(k), down(k))) continue;
      rows.add(row[k]);
      moved += changed[k];
    }
    const then = LabelLoop.mark ? `, ${count(moved)} of them changed; the table shows those. Escape, or a click, shows all.` : ".";
    status.textContent = `${count(rows.size)} rows marked${then}`;
    figure.dataset.marked = rows.size;
    LabelLoop.mark?.(rows);
  }

  function all() {
    path = [];
    circle = null;
    paint();
    status.textContent = "";
    delete figure.dataset.marked;
    LabelLoop.mark?.(null);
  }

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => { circle = null; path = [at(event)]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons && path.length) { path.push(at(event)); paint(); } });
  canvas.addEventListener("pointerup", () => (path.length > 3 ? choose() : all()));
  canvas.addEventListener("pointercancel", all); // the page is scrolled instead
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-12, 0], ArrowRight: [12, 0], ArrowUp: [0, -12], ArrowDown: [0, 12] }[event.key];
    if (!step && !["+", "-", "Enter", "Escape"].includes(event.key)) return;
    event.preventDefault();
    path = [];
    circle ??= { x: width / 2, y: height / 2, r: 60 };
    if (event.key === "Escape") return all();
    if (step) { circle.x += step[0]; circle.y += step[1]; }
    if (event.key === "+") circle.r += 12;
    if (event.key === "-") circle.r = Math.max(8, circle.r - 12);
    paint();
    if (event.key === "Enter") choose();
  });
  const again = () => { paintDots(); all(); };
  addEventListener("resize", () => { if (canvas.clientWidth !== width) again(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  paintDots();
  figure.dataset.ready = "yes";
};
