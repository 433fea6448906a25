"use strict";
// The review page: one doubtful row at a time, or a grid of one class pair. What is decided is on the server's disk
// before the page goes on; what could not be sent is kept and sent again.
(() => {
  const { make, percent, count } = LabelLoop;
  const { classes } = LabelLoop.read("review-data");
  const at = (id) => document.getElementById(id);
  const tab = crypto.randomUUID();
  const waiting = []; // rows fetched ahead
  const done = []; // keys of the answers given in this tab, the newest last
  let current = null, busy = false, mode = "one", last = null;

  const named = at("reviewer");
  const remembered = localStorage.getItem("labelloop-reviewer");
  if (remembered && !named.value) named.value = remembered;
  const reviewer = () => named.value.trim() || "reviewer";

  async function ask(path, options = {}) {
    let reply;
    try {
      reply = await fetch(path, { ...options, headers: options.body ? { "Content-Type": "application/json" } : {} });
    } catch {
      throw new Error("the server does not respond; start `labelloop review` again (everything saved so far is kept)");
    }
    const type = reply.headers.get("Content-Type") || "";
    const content = type.startsWith("application/json") ? await reply.json() : await reply.text();
    if (!reply.ok) throw new Error(content.error || reply.statusText);
    return content;
  }

  const get = (path, query = {}) => ask(`${path}?${new URLSearchParams({ reviewer: reviewer(), tab, ...query })}`);
  const post = (path, content = {}) => ask(path, { method: "POST", body: JSON.stringify({ reviewer: reviewer(), tab, ...content }) });

  function say(text, kind = "") {
    at("message").textContent = text;
    at("message").className = kind;
  }

  function show(state) {
    last = state;
    const parts = [`${count(state.mine)} decisions by you`, `${count(state.reviewed)} of ${count(state.rows)} rows reviewed`];
    if (state.reviewers.length > 1 || state.by_several) {
      parts.push(`${state.reviewers.length} reviewers agree on ${state.agreed} of ${state.by_several} rows that several answered`);
    }
    if (state.disputed) parts.push(`${state.disputed} disputed`);
    const estimate = state.estimate;
    const range = estimate && estimate.low !== null ? ` (${percent(estimate.low)} to ${percent(estimate.high)})` : "";
    at("numbers").replaceChildren(
      make("p", {}, parts.join(" · ")),
      estimate ? make("p", { class: "estimate" }, "estimated share of right labels: ", make("b", {}, percent(estimate.value, 2)), range) : null ?? "");
    document.body.dataset.mine = state.mine;
    document.body.dataset.reviewed = state.reviewed;
  }

  function look(found, big) {
    if (!found) return make("p", { class: "nothing" }, "The run has no picture, text or values for this row.");
    if (found.kind === "image") {
      const kind = found.jpeg.startsWith("iVBOR") ? "png" : "jpeg";
      return make("img", { src: `data:image/${kind};base64,${found.jpeg}`, alt: big ? "the row to review" : "", class: big ? "big" : "small" });
    }
    if (found.kind === "text") return make("blockquote", {}, found.text);
    return make("table", { class: "values" }, make("tbody", {}, ...found.values.map(([name, value]) =>
      make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value)))));
  }

  function answers() {
    if (!current) return [];
    const same = current.given === current.proposed;
    return [
      ...(current.given === null ? [] : [{ key: "k", action: "keep", text: `Keep ${current.given}` }]),
      ...(current.proposed === null || same ? [] : [{ key: "a", action: "accept", text: `Accept ${current.proposed}` }]),
      { key: "c", action: "choose", text: "Another class…" },
      { key: "u", action: "unsure", text: "Cannot tell" },
      { key: "s", action: "skip", text: "Skip" },
      { key: "z", action: "undo", text: "Undo" },
    ];
  }

  function paint() {
    at("chooser").hidden = true;
    if (!current) {
      at("card").replaceChildren(make("p", { class: "nothing" }, "There are no more rows for you. Refit with the decisions, or export them."));
      at("keys").replaceChildren(make("button", { type: "button", onclick: undo }, make("kbd", {}, "z"), " Undo"));
      at("near").replaceChildren();
      delete document.body.dataset.row;
      return;
    }
    const said = Object.entries(current.answers).filter(([name]) => current.disputed || name !== reviewer());
    at("card").replaceChildren(
      make("div", { class: "look" }, look(current.look, true)),
      make("div", { class: "facts" },
        make("p", { class: "id" }, `row ${current.id}`),
        make("p", {}, "given ", make("b", { class: "given" }, current.given ?? "none")),
        make("p", {}, current.given === current.proposed ? "kept " : "proposed ", make("b", { class: "corrected" }, current.proposed ?? "none"), current.confidence === null ? "" : ` with ${percent(current.confidence)}`),
        current.disputed ? make("p", { class: "dispute" }, "Reviewers disagree: ", said.map(([name, label]) => `${name} says ${label ?? "cannot tell"}`).join(", ")) : null,
        !current.disputed && said.length ? make("p", { class: "says" }, `answered before by ${said.map(([name]) => name).join(", ")}: a second opinion`) : null));
    at("keys").replaceChildren(...answers().map(({ key, action, text }) => {
      const button = make("button", { type: "button", onclick: () => act(action) }, make("kbd", {}, key), ` ${text}`);
      button.dataset.action = action;
      return button;
    }));
    at("near").replaceChildren(make("h2", {}, "Nearest clean rows"),
      current.near.length
        ? make("ul", {}, ...current.near.map((each) => make("li", {}, look(each.look, false), make("b", {}, each.label ?? "?"))))
        : make("p", { class: "nothing" }, "The run has no features to find them with."));
    document.body.dataset.row = current.row;
  }

  async function advance() {
    if (!waiting.length) {
      const found = await get("/api/next", { count: 3 });
      waiting.push(...found.rows);
      show(found.state);
    }
    current = waiting.shift() ?? null;
    paint();
  }

  function setBusy(is) {
    busy = is;
    document.body.setAttribute("aria-busy", String(is)); // keys count again when it is false
  }

  async function act(action, label = null) {
    if (busy || (!current && action !== "undo")) return;
    if (action === "choose") return choose();
    if (action === "undo") return undo();
    setBusy(true);
    const key = crypto.randomUUID();
    try {
      const reply = await post("/api/decide", { decisions: [{ row: current.row, action, label, key }] });
      done.push(key);
      say("");
      show(reply.state);
      await advance();
    } catch (error) {
      say(error.message, "wrong"); // the row stays, so that the answer can be given again
    } finally {
      setBusy(false);
    }
  }

  async function undo() {
    if (busy) return;
    setBusy(true);
    try {
      const reply = await post("/api/undo", done.length ? { key: done.at(-1) } : {});
      if (reply.row) {
        done.pop();
        if (current) waiting.unshift(current);
        current = reply.row;
        say(`Taken back: row ${reply.row.id}.`);
        paint();
      } else say("You have no decision to take back.");
      show(reply.state);
    } catch (error) {
      say(error.message, "wrong");
    } finally {
      setBusy(false);
    }
  }

  // --- another class: type to search ---
  let matches = [], marked = 0;

  function choose() {
    at("chooser").hidden = false;
    at("search").value = "";
    list();
    at("search").focus();
  }

  function list() {
    const words = at("search").value.toLowerCase();
    const first = classes.filter((name) => name.toLowerCase().startsWith(words));
    const rest = classes.filter((name) => !name.toLowerCase().startsWith(words) && name.toLowerCase().includes(words));
    matches = [...first, ...rest].slice(0, 12);
    marked = Math.min(marked, Math.max(matches.length - 1, 0));
    at("found").replaceChildren(...matches.map((name, k) => make("li", { role: "option", id: `option-${k}`, "aria-selected": k === marked ? "true" : "false", onclick: () => pick(name) }, name)));
    at("search").setAttribute("aria-activedescendant", matches.length ? `option-${marked}` : "");
  }

  function pick(name) {
    at("chooser").hidden = true;
    at("card").focus();
    if (name !== undefined) act("label", name);
  }

  at("search").addEventListener("input", () => { marked = 0; list(); });
  at("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") pick(matches[marked]);
    else if (event.key === "Escape") pick();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      marked = Math.max(0, Math.min(matches.length - 1, marked + (event.key === "ArrowDown" ? 1 : -1)));
      list();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });

  // --- a grid of one class pair ---
  let tiles = [];

  async function grid(pair) {
    const { pairs } = await get("/api/pairs");
    const chosen = pairs.find((each) => pair && each.given === pair.given && each.corrected === pair.corrected) ?? pairs[0];
    if (!chosen) {
      tiles = [];
      at("many").replaceChildren(make("p", { class: "nothing" }, "Every change has been reviewed."));
      return;
    }
    const { rows } = await get("/api/grid", { given: chosen.given, corrected: chosen.corrected, count: 48 });
    const select = make("select", { id: "pair", onchange: () => grid(pairs[Number(select.value)]).catch((error) => say(error.message, "wrong")) },
      ...pairs.map((each, k) => make("option", { value: k, selected: each === chosen }, `${each.given} → ${each.corrected} (${each.rows})`)));
    tiles = rows.map((row) => {
      const tile = { row, accept: true };
      tile.node = make("button", { type: "button", class: "tile-row", "aria-pressed": "true", onclick: () => turn(tile) },
        look(row.look, false), make("span", {}, row.confidence === null ? "" : percent(row.confidence, 0)), make("span", { class: "verdict" }, "accept"));
      return tile;
    });
    const all = (accept) => () => tiles.forEach((tile) => { tile.accept = !accept; turn(tile); });
    at("many").replaceChildren(
      make("div", { class: "controls" },
        make("label", {}, "class pair, given → proposed", select),
        make("button", { type: "button", onclick: all(true) }, "Accept all"),
        make("button", { type: "button", onclick: all(false) }, "Reject all"),
        make("button", { type: "button", id: "save-grid", onclick: () => save(chosen) }, make("kbd", {}, "Enter"), ` Save these ${tiles.length}`)),
      make("p", { class: "says" }, `Accept means the label becomes ${chosen.corrected}; reject means it stays ${chosen.given}. Click a picture to switch it.`),
      make("div", { class: "tiles-rows" }, ...tiles.map((tile) => tile.node)));
    at("save-grid").focus();
  }

  function turn(tile) {
    tile.accept = !tile.accept;
    tile.node.setAttribute("aria-pressed", String(tile.accept));
    tile.node.querySelector(".verdict").textContent = tile.accept ? "accept" : "reject";
  }

  async function save(pair) {
    if (busy || !tiles.length) return;
    setBusy(true);
    try {
      const decisions = tiles.map((tile) => ({ row: tile.row.row, action: tile.accept ? "accept" : "keep", key: crypto.randomUUID() }));
      const reply = await post("/api/decide", { decisions });
      show(reply.state);
      say(`${reply.kept} decisions saved.`);
      await grid(pair);
    } catch (error) {
      say(error.message, "wrong");
    } finally {
      setBusy(false);
    }
  }

  function turnTo(next) {
    mode = next;
    at("one").hidden = mode !== "one";
    at("many").hidden = mode !== "grid";
    at("show-one").setAttribute("aria-pressed", String(mode === "one"));
    at("show-grid").setAttribute("aria-pressed", String(mode === "grid"));
    const work = mode === "grid" ? grid() : current ? Promise.resolve() : advance();
    work.catch((error) => say(error.message, "wrong"));
  }

  async function refit() {
    at("refit").disabled = true;
    say("Fitting the correction again…");
    try {
      const reply = await post("/api/refit");
      say("");
      at("message").replaceChildren(make("pre", { tabindex: "0" }, reply.summary),
        reply.report ? make("a", { href: "/refitted", target: "_blank", rel: "noopener" }, "Report of the new run") : "");
      document.body.dataset.refitted = reply.folder;
    } catch (error) {
      say(error.message, "wrong");
    } finally {
      at("refit").disabled = false;
    }
  }

  at("show-one").addEventListener("click", () => turnTo("one"));
  at("show-grid").addEventListener("click", () => turnTo("grid"));
  at("refit").addEventListener("click", refit);
  at("export").href = "/api/export";
  at("report").href = "/report";
  named.addEventListener("change", () => {
    localStorage.setItem("labelloop-reviewer", named.value.trim());
    waiting.length = 0;
    current = null;
    advance().catch((error) => say(error.message, "wrong"));
  });

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "1" || event.key === "2") return turnTo(event.key === "1" ? "one" : "grid");
    if (mode !== "one") return;
    const answer = answers().find((each) => each.key === event.key.toLowerCase());
    const chosen = answer?.action ?? (event.key.toLowerCase() === "z" ? "undo" : null);
    if (!chosen) return;
    event.preventDefault();
    if (!event.repeat) act(chosen);
  });

  setInterval(() => {
    if (!busy && document.visibilityState === "visible") get("/api/state").then(show).catch((error) => say(error.message, "wrong"));
  }, 5000);
  advance().then(() => { document.body.dataset.ready = "yes"; }).catch((error) => say(error.message, "wrong"));
})();
