"use strict";
// The table of changed rows. Only the rows in sight are in the document; sorting and filtering work on columns of numbers.
LabelLoop.rows = async (data, place) => {
  const { make, percent, count } = LabelLoop;
  const packed = await LabelLoop.inflate(data.rows.columns);
  const column = (name, kind) => new kind(LabelLoop.bytes(packed[name]).buffer);
  const row = column("row", Uint32Array), given = column("given", Uint16Array), corrected = column("corrected", Uint16Array);
  const confidence = column("confidence", Float32Array), score = column("score", Float32Array);
  const images = data.rows.images, total = row.length;
  const shown = new Array(total);
  for (const [at, look] of packed.shown) shown[at] = look;
  const place_of = new Map(Array.from(row, (number, at) => [number, at]));
  const texts = (at) => (packed.kind === "text" ? shown[at] ?? "" : packed.kind === "values" && shown[at] ? shown[at].join(" ") : "");
  const id = (at) => (packed.ids ? packed.ids[at] : String(row[at]));
  const narrow = matchMedia("(max-width: 600px)"); // a phone has two lines for a row: labels, and below what it looks like
  let HEIGHT = 0;
  const measure = () => { HEIGHT = packed.kind === "image" ? 72 : narrow.matches && packed.kind !== "none" ? 76 : 44; scroller.style.setProperty("--row", `${HEIGHT}px`); };
  const AROUND = 8, PRINTED = 40; // rows above and below those in sight; rows on paper

  const state = { key: "confidence", down: true, given: -1, corrected: -1, least: 0, most: 1, words: "", rows: null };
  const orders = new Map();
  let found = new Uint32Array(0);

  function order(key) {
    if (!orders.has(key)) {
      const all = Uint32Array.from({ length: total }, (_, k) => k);
      const values = { confidence, score, given, corrected, row }[key];
      if (key === "pair") all.sort((a, b) => given[a] - given[b] || corrected[a] - corrected[b] || confidence[b] - confidence[a]);
      else all.sort((a, b) => values[a] - values[b] || a - b);
      orders.set(key, all);
    }
    return orders.get(key);
  }

  function select() {
    const all = order(state.key), kept = new Uint32Array(total);
    const words = state.words.toLowerCase();
    let size = 0;
    for (let k = 0; k < total; k++) {
      const at = state.down ? all[total - 1 - k] : all[k];
      if (state.given >= 0 && given[at] !== state.given) continue;
      if (state.corrected >= 0 && corrected[at] !== state.corrected) continue;
      if (confidence[at] < state.least || confidence[at] > state.most) continue;
      if (state.rows && !state.rows.has(row[at])) continue;
      if (words && !id(at).toLowerCase().includes(words) && !texts(at).toLowerCase().includes(words)) continue;
      kept[size++] = at;
    }
    found = kept.subarray(0, size);
  }

  const name = (code) => (code === 65535 ? "–" : data.classes[code]);
  const looks = { image: "picture", text: "text", values: "values", none: null }[packed.kind];
  const columns = [
    { key: "row", title: packed.ids ? "id" : "row", kind: "id" },
    ...(looks ? [{ key: null, title: looks, kind: "look" }] : []),
    { key: "given", title: "given" }, { key: "corrected", title: "corrected" },
    { key: "confidence", title: "confidence" },
  ];

  function look(at) {
    if (packed.kind === "image") {
      if (!images[at]) return make("span", { class: "nothing" }, "no picture kept");
      const kind = images[at].startsWith("iVBOR") ? "png" : "jpeg";
      return make("img", { src: `data:image/${kind};base64,${images[at]}`, alt: `row ${id(at)}` });
    }
    if (shown[at] === undefined) return make("span", { class: "nothing" }, packed.kind === "text" ? "no text kept" : "no values kept");
    if (packed.kind === "text") return make("span", { class: "text", dir: "auto", title: shown[at] }, shown[at]);
    const filled = packed.names.map((each, k) => [each, shown[at][k]]).filter(([, value]) => value); // blanks are in the whole row
    return make("span", { class: "text" }, ...filled.map(([each, value]) => make("span", { class: "pair" }, make("b", {}, each), ` ${value} `)));
  }

  function line(place) {
    const at = found[place];
    const bar = make("span", { class: "meter" });
    bar.append(make("i", { style: `width:${(100 * confidence[at]).toFixed(1)}%` }));
    return make("div", { class: "line", role: "row", "aria-rowindex": place + 2, style: `top:${place * HEIGHT}px`, onclick: () => detail(at) },
      make("span", { role: "cell", class: "id", title: id(at) }, make("button", { type: "button", class: "link", "aria-label": `row ${id(at)}: show all of it` }, id(at))),
      looks ? make("span", { role: "cell", class: "look" }, look(at)) : null,
      make("span", { role: "cell", class: "given", title: name(given[at]) }, name(given[at])),
      make("span", { role: "cell", class: "corrected", title: name(corrected[at]) }, name(corrected[at])),
      make("span", { role: "cell", class: "number" }, percent(confidence[at]), bar));
  }

  // All of a row, in a box above the page: values and texts are cut off in a line of the table.
  const box = make("dialog", { "aria-label": "One row" });
  function detail(at) {
    const close = make("button", { type: "button", onclick: () => box.close() }, "Close");
    const whole = shown[at] === undefined ? [look(at)] : packed.kind === "text" ? [make("blockquote", { dir: "auto" }, shown[at])]
      : [make("table", {}, make("tbody", {}, ...packed.names.map((each, k) => make("tr", {}, make("th", { scope: "row" }, each), make("td", {}, shown[at][k] || "(blank)")))))];
    box.replaceChildren(make("h3", {}, `row ${id(at)}`),
      make("p", {}, "given ", make("b", { class: "given" }, name(given[at])), ", returned ", make("b", { class: "corrected" }, name(corrected[at])), ` with ${percent(confidence[at])}; the given label has ${percent(score[at])}.`),
      ...whole, make("p", {}, close));
    box.showModal();
  }

  const body = make("div", { class: "lines", role: "rowgroup" });
  const scroller = make("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Changed rows, scrollable" });
  const status = make("p", { class: "status", role: "status" }), printed = make("p", { class: "says printed" });
  const heads = columns.map(({ key, title, kind }) => {
    const head = make("span", { role: "columnheader", class: kind ?? "" });
    head.append(key ? make("button", { type: "button", onclick: () => sort(key) }, title) : title);
    head.dataset.key = key ?? "";
    return head;
  });
  const grid = make("div", { class: `grid ${packed.kind}`, role: "table", "aria-label": "Changed rows" },
    make("div", { class: "heads", role: "rowgroup" }, make("div", { class: "head", role: "row", "aria-rowindex": 1 }, ...heads)), body);
  scroller.append(grid);

  let printing = false;

  function render(all = false) {
    const top = Math.max(0, scroller.scrollTop), seen = scroller.clientHeight || 480;
    const first = all ? 0 : Math.max(0, Math.floor(top / HEIGHT) - AROUND);
    const last = all ? Math.min(found.length, PRINTED) : Math.min(found.length, Math.ceil((top + seen) / HEIGHT) + AROUND);
    body.style.height = `${(all ? last : found.length) * HEIGHT}px`;
    body.replaceChildren(...Array.from({ length: last - first }, (_, k) => line(first + k)));
    printed.textContent = last < found.length ? `The first ${count(last)} of ${count(found.length)} changes; all are in labels.parquet.` : "";
  }

  function update() {
    const started = performance.now();
    select();
    scroller.scrollTop = 0;
    render();
    const direction = state.down ? "descending" : "ascending";
    for (const head of heads) {
      if (head.dataset.key) head.setAttribute("aria-sort", head.dataset.key === state.key ? direction : "none");
    }
    grid.setAttribute("aria-rowcount", found.length + 1);
    void grid.offsetHeight; // the layout is part of what a person waits for
    const took = performance.now() - started;
    status.textContent = `${count(found.length)} of ${count(total)} changes${state.rows ? `, among the ${count(state.rows.size)} rows marked in the map` : ""}`;
    clear.hidden = !state.rows && state.given < 0 && state.corrected < 0 && !state.words && state.least === 0 && state.most === 1;
    place.dataset.took = took.toFixed(2);
    place.dataset.found = found.length;
  }

  function sort(key) {
    state.down = state.key === key ? !state.down : key === "confidence";
    state.key = key;
    update();
  }

  function chooser(title, key) {
    const present = [...new Set(key === "given" ? given : corrected)].filter((code) => code !== 65535).sort((a, b) => a - b);
    const select = make("select", { onchange: () => { state[key] = Number(select.value); update(); } },
      make("option", { value: "-1" }, "any"), ...present.map((code) => make("option", { value: code }, name(code))));
    select.dataset.filter = key;
    return make("label", {}, title, select);
  }

  function bound(title, key, value) {
    const input = make("input", { type: "number", min: "0", max: "1", step: "0.05", value, oninput: () => {
      const number = Number(input.value);
      state[key] = input.value === "" || Number.isNaN(number) ? Number(value) : number;
      update();
    } });
    input.dataset.filter = key;
    return make("label", {}, title, input);
  }

  const search = make("input", { type: "search", oninput: () => { state.words = search.value; update(); } });
  search.dataset.filter = "words";
  const quick = (title, down) => make("button", { type: "button", onclick: () => { state.key = "confidence"; state.down = down; update(); } }, title);
  const controls = make("form", { class: "controls", "aria-label": "Filter the changed rows", onsubmit: (event) => event.preventDefault() },
    chooser("given", "given"), chooser("corrected", "corrected"), bound("confidence from", "least", "0"), bound("to", "most", "1"),
    make("label", {}, looks === "text" || looks === "values" ? `find in id and ${looks}` : "find in id", search),
    quick("most confident", true), quick("most doubtful", false));

  const clear = make("button", { type: "button", onclick: () => show({}) }, "Show all changes");
  controls.append(clear);

  // Shows the rows behind a number, a cell, a flow or a part of the map: classes by number, rows by number.
  function show({ given: from = -1, corrected: to = -1, rows = null }) {
    Object.assign(state, { given: from, corrected: to, rows, words: "", least: 0, most: 1 });
    for (const field of controls.querySelectorAll("[data-filter]")) field.value = state[field.dataset.filter];
    update();
  }
  LabelLoop.drill = (wanted) => {
    show(wanted);
    document.getElementById("rows").scrollIntoView({ block: "start" });
    document.getElementById("rows").focus({ preventScroll: true });
  };
  LabelLoop.mark = (rows) => show({ rows });
  LabelLoop.inTable = (number) => place_of.has(number);

  place.replaceChildren(controls, status, scroller, printed, box);
  measure();
  let waiting = false;
  scroller.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; render(printing); });
  }, { passive: true });
  const draw = (paper) => { printing = paper; render(printing); };
  addEventListener("resize", () => { measure(); render(printing); });
  addEventListener("beforeprint", () => draw(true));
  addEventListener("afterprint", () => draw(false));
  update();
  place.dataset.ready = "yes";
};
