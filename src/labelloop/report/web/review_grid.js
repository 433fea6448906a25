"use strict";
// The grid of one class pair. Nothing is chosen until somebody chooses it, and only rows that were on the screen can be.
LabelLoop.grid = (page) => {
  const { make, percent } = LabelLoop;
  const place = document.getElementById("many");
  let tiles = [], pair = null, watcher = null;

  const chosen = () => tiles.filter((tile) => tile.verdict);
  const seen = () => tiles.filter((tile) => tile.seen);

  function update() {
    const marked = chosen().length, all = tiles.length;
    const button = document.getElementById("save-grid");
    if (!button) return;
    button.disabled = !marked;
    button.replaceChildren(make("kbd", {}, "Enter"), marked ? ` Save ${marked} of ${all} rows` : " Nothing is chosen yet");
    document.getElementById("on-screen").textContent = `${seen().length} of ${all} rows were on the screen so far; ${marked} chosen.`;
  }

  function choose(tile, verdict) {
    tile.verdict = tile.verdict === verdict ? null : verdict;
    tile.node.dataset.verdict = tile.verdict ?? "";
    for (const button of tile.node.querySelectorAll(".pick button")) button.setAttribute("aria-pressed", String(button.dataset.verdict === tile.verdict));
    update();
  }

  function made(row) {
    const tile = { row, verdict: null, seen: false };
    const pick = (verdict, text) => {
      const button = make("button", { type: "button", "aria-pressed": "false", "aria-label": `${text}: row ${row.id}`, onclick: () => choose(tile, verdict) }, text);
      button.dataset.verdict = verdict;
      return button;
    };
    tile.node = make("div", { class: `tile-row ${row.look?.kind ?? "none"}`, role: "group", "aria-label": `row ${row.id}` },
      LabelLoop.cards.small(row.look, row.order), make("span", {}, row.confidence === null ? "" : `${percent(row.confidence, 0)} sure`),
      make("div", { class: "pick" }, pick("accept", "accept"), pick("keep", "reject")));
    return tile;
  }

  // A row counts as seen when half of it, or half of the window, has been in sight for half a second.
  function watch() {
    watcher?.disconnect();
    const byNode = new Map(tiles.map((tile) => [tile.node, tile]));
    watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const tile = byNode.get(entry.target);
        clearTimeout(tile.timer);
        if (entry.isIntersecting) tile.timer = setTimeout(() => { tile.seen = true; tile.node.dataset.seen = "yes"; update(); }, 500);
      }
    }, { threshold: 0.5 });
    for (const tile of tiles) watcher.observe(tile.node);
  }

  async function open(wanted = pair) {
    const { pairs } = await page.get("/api/pairs");
    const found = pairs.find((each) => wanted && each.given === wanted.given && each.corrected === wanted.corrected) ?? pairs[0];
    tiles = [];
    pair = found ?? null;
    if (!found) {
      place.replaceChildren(make("p", { class: "nothing" }, "There is no change to review here: the run made none, or all have been answered."));
      return;
    }
    const { rows } = await page.get("/api/grid", { given: found.given, corrected: found.corrected, count: 48 });
    const select = make("select", { id: "pair", onchange: () => open(pairs[Number(select.value)]).catch(page.fail) },
      ...pairs.map((each, k) => make("option", { value: k, selected: each === found }, `${each.given} → ${each.corrected} (${each.rows})`)));
    tiles = rows.map(made);
    const all = (verdict) => () => {
      for (const tile of seen()) if (tile.verdict !== verdict) choose(tile, verdict);
      page.say(`${seen().length} rows that were on the screen are marked; the others are not.`);
    };
    place.replaceChildren(
      make("div", { class: "controls sticky" },
        make("label", {}, "class pair, given → proposed", select),
        make("button", { type: "button", id: "accept-seen", onclick: all("accept") }, "Accept all seen"),
        make("button", { type: "button", id: "reject-seen", onclick: all("keep") }, "Reject all seen"),
        make("button", { type: "button", class: "strong", id: "save-grid", onclick: save }),
        make("span", { id: "on-screen", class: "says", role: "status" })),
      make("p", { class: "says" }, `Accept: the label becomes ${found.corrected}. Reject: it stays ${found.given}. Rows that you do not mark stay open.`),
      make("div", { class: `tiles-rows ${rows[0]?.look?.kind ?? "none"}` }, ...tiles.map((tile) => tile.node)));
    watch();
    update();
  }

  async function save() {
    const marked = chosen();
    if (!marked.length) return page.say("Nothing is chosen: mark rows with accept or reject first.");
    const unseen = marked.filter((tile) => !tile.seen).length;
    if (unseen) return page.say(`${unseen} marked rows were not on the screen; scroll to them first.`, "wrong");
    const batch = crypto.randomUUID();
    const decisions = marked.map((tile) => ({ row: tile.row.row, action: tile.verdict, queue: "grid", batch, seen: true }));
    if (await page.decide(decisions)) {
      page.say(`${marked.length} of ${tiles.length} rows saved; all ${marked.length} had been on the screen. z takes all of them back.`);
      await open(pair);
    }
  }

  return { open, save };
};
