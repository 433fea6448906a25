"use strict";
// The review page: one row at a time, answered by keys. What is decided is on the server's disk before the page goes on;
// what could not be sent is kept and sent again when the server is back.
(() => {
  const { make, percent, count, cards } = LabelLoop;
  const { classes, run } = LabelLoop.read("review-data");
  const at = (id) => document.getElementById(id);
  const tab = crypto.randomUUID();
  const waiting = []; // rows fetched ahead
  const done = []; // decisions given in this tab, a list each, the newest last
  const undone = []; // those that were taken back
  const FOLLOWED = 10; // answers in a row that repeat the proposal, after which hidden labels are offered
  const VIEWS = {
    improve: "Rows whose label is most likely wrong come first. They improve the labels, but do not count for the estimate.",
    estimate: "Random rows, with their labels hidden. Only these show how many labels are right.",
    grid: "All changes of one class pair. Mark rows, then save; nothing is marked for you.",
    disputes: "Rows on which reviewers disagree.",
    people: "How well reviewers agree, and how fast they are.",
  };
  let current = null, busy = false, view = "improve", blindImprove = false, lost = false, pending = null, turn = 0, followed = 0;

  const named = at("reviewer"), goal = at("goal");
  const stored = { name: localStorage.getItem("labelloop-reviewer"), goal: localStorage.getItem("labelloop-goal") };
  if (stored.name && !named.value) named.value = stored.name;
  if (stored.goal) goal.value = stored.goal;
  const reviewer = () => named.value.trim() || "reviewer";
  const blind = () => view === "estimate" || blindImprove;
  const goalShare = () => Math.min(0.999, Math.max(0.5, Number(goal.value) / 100 || 0.97));

  class Unreachable extends Error {}

  async function ask(path, options = {}) {
    let reply;
    try {
      reply = await fetch(path, { ...options, headers: options.body ? { "Content-Type": "application/json" } : {} });
    } catch {
      throw new Unreachable("The server does not respond. Start `labelloop review` again; this page will find it, and nothing that was saved is lost.");
    }
    const type = reply.headers.get("Content-Type") || "";
    const content = type.startsWith("application/json") ? await reply.json() : await reply.text();
    if (!reply.ok) throw new Error(content.error || reply.statusText);
    return content;
  }

  const get = (path, query = {}) => ask(`${path}?${new URLSearchParams({ reviewer: reviewer(), tab, goal: goalShare(), ...query })}`);
  const post = (path, content = {}) => ask(path, { method: "POST", body: JSON.stringify({ reviewer: reviewer(), tab, goal: goalShare(), ...content }) });

  function say(text, kind = "") {
    at("message").textContent = text;
    at("message").className = kind;
  }

  function fail(error) {
    if (error instanceof Unreachable) setSaved("lost");
    say(error.message, "wrong");
  }

  function setSaved(state) {
    lost = state === "lost";
    at("saved").dataset.state = state;
    at("saved").textContent = { saved: "All decisions saved", saving: "Saving…", lost: pending ? "Not saved yet: no server" : "No server" }[state];
  }

  function setBusy(is) {
    busy = is;
    document.body.setAttribute("aria-busy", String(is)); // keys count again when it is false
  }

  // --- progress ---
  function show(state) {
    const parts = [make("b", {}, `${count(state.mine)} decisions by you`), ` · ${count(state.reviewed)} of ${count(state.rows)} rows reviewed`];
    if (state.by_several) parts.push(` · same answer on ${state.agreed} of ${state.by_several} rows that several answered`);
    at("counts").replaceChildren(...parts);
    const found = state.estimate, how = { bounded: "bounded by", assumed: "assumed from" }[found?.how] ?? "measured on";
    const range = found && `${percent(found.low)} to ${percent(found.high)}`, only = found?.how === "bounded"; // no value between bounds is better
    at("estimate").replaceChildren("Labels that are right now: ", ...(found
      ? [make("b", {}, only ? range : percent(found.value)), ` (${only ? "" : `${range}, `}${how} ${count(found.rows)} clean rows). A refit brings in your decisions.`]
      : ["not known: the run has no estimate. Random rows show it."]), state.unproved ? ` ${state.unproved}` : "");
    const check = state.random, more = state.goal.more;
    const checked = check.rows ? `${check.right} of ${check.rows} random rows were right${check.share ? ` (${percent(check.share.low)} to ${percent(check.share.high)})` : ""}` : "no random row is answered yet";
    at("toward").textContent = `${checked}. ` + (more === 0 ? "The goal is reached, with 95% certainty: you can stop." : more === null
      ? "The labels do not look clearly better than the goal: review rows to improve, then refit."
      : `About ${count(more)} more random rows would show that it is reached.`);
    at("show-disputes").textContent = state.disputed ? `Disagreements (${state.disputed})` : "Disagreements";
    document.body.dataset.mine = state.mine;
    document.body.dataset.reviewed = state.reviewed;
    document.body.dataset.disputed = state.disputed;
  }

  // --- one row ---
  const likely = () => (blind() || !current?.likely ? classes.slice(0, 9).map((name) => [name, null]) : current.likely);

  function key(letter, text, action, more = null) {
    const button = make("button", { type: "button", onclick: () => act(action) }, make("kbd", {}, letter), make("span", {}, text), more);
    button.dataset.action = action;
    return button;
  }

  function paintKeys() {
    const same = current.given === current.proposed, hidden = current.blind;
    const numbers = likely().map(([name, odds], k) => {
      const button = make("button", { type: "button", onclick: () => act("label", name) }, make("kbd", {}, String(k + 1)), make("span", {}, name), make("span", { class: "odds" }, odds === null ? "" : percent(odds, 0)));
      button.dataset.class = name;
      return button;
    });
    at("keys").replaceChildren(
      ...(hidden || current.given === null ? [] : [key("k", `Keep ${current.given}`, "keep")]),
      ...(hidden || current.proposed === null || same ? [] : [key("a", `Accept ${current.proposed}`, "accept")]),
      make("h2", {}, hidden ? "Classes" : "Classes, the likeliest first"), ...numbers,
      key("c", classes.length > 9 ? `Search all ${classes.length} classes…` : "Search a class…", "choose"),
      make("div", { class: "row2" }, key("u", "Cannot tell", "unsure"), key("s", "Skip", "skip"), key("z", "Undo", "undo"), key("y", "Redo", "redo")));
  }

  // Why labels in sight may lead the reviewer here; null if they hardly do.
  function anchored(others) {
    if (others.length && !current.disputed) return `Answered before by ${others.join(", ")}. A second opinion is worth more with the labels hidden.`;
    if (followed >= FOLLOWED) return `Your last ${followed} answers all followed the proposal. A few rows with hidden labels would show whether you agree on your own.`;
    return null;
  }

  function paintVerdict() {
    const said = Object.entries(current.answers ?? {}).filter(([name]) => current.disputed || name !== reviewer());
    const why = anchored(said.map(([name]) => name));
    at("verdict").replaceChildren(...(current.blind
      ? [make("p", { class: "says" }, "Blind: the given and the proposed label stay hidden until you have answered.")]
      : [make("p", {}, "given ", make("b", { class: "given", dir: "auto" }, current.given ?? "none")),
        make("p", {}, current.given === current.proposed ? "kept " : "proposed ", make("b", { class: "corrected", dir: "auto" }, current.proposed ?? "none"), current.confidence === null ? "" : `, ${percent(current.confidence)} sure`),
        current.disputed ? make("p", { class: "dispute" }, "Reviewers disagree: ", said.map(([name, label]) => `${name} says ${label ?? "cannot tell"}`).join(", ")) : "",
        why ? make("p", { class: "says" }, `${why} `, make("button", { type: "button", class: "link", id: "offer-blind", onclick: turnBlind }, "Hide the labels"), " ", make("kbd", {}, "b")) : ""]));
  }

  function paint() {
    at("chooser").hidden = true;
    at("why").hidden = !current || current.blind;
    at("side").classList.toggle("empty", !current);
    if (!current) {
      at("card").replaceChildren(make("p", { class: "nothing" }, view === "improve" ? "No rows are left for you here. Change the filter, refit with the decisions, or export them." : "Every random row has been answered."));
      at("verdict").replaceChildren();
      at("keys").replaceChildren(key("z", "Undo", "undo"));
      at("near").replaceChildren();
      delete document.body.dataset.row;
      return;
    }
    at("card").replaceChildren(make("p", { class: "id" }, `row ${current.id}`), ...cards.whole(current).filter((each) => each !== null));
    paintVerdict();
    paintKeys();
    if (!current.blind) at("why-lines").replaceChildren(cards.why(current));
    at("near").className = current.look?.kind === "image" ? "pictures-near" : "";
    at("near").replaceChildren(...cards.nearest(current));
    document.body.dataset.row = current.row;
  }

  const filter = () => {
    const values = Object.fromEntries([...document.querySelectorAll("#filter [data-filter]")].map((field) => [field.dataset.filter, field.value.trim()]));
    return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));
  };

  async function advance() {
    if (!waiting.length) {
      const asked = turn;
      current = null; // its answer is given, or another view was chosen
      const found = await get("/api/next", { count: 3, queue: view === "estimate" ? "estimate" : "improve", blind: blind() ? "1" : "", ...(view === "improve" ? filter() : {}) });
      if (asked !== turn) return; // another view or filter was chosen meanwhile
      waiting.push(...found.rows);
      show(found.state);
    }
    current = waiting.shift() ?? null;
    paint();
  }

  const restart = () => {
    turn += 1;
    delete document.body.dataset.row;
    waiting.length = 0;
    current = null;
    at("filter-box").toggleAttribute("data-on", Object.keys(filter()).length > 0);
    at("filter-box").firstElementChild.textContent = Object.keys(filter()).length ? "Filtered: not all rows come" : "Filter the rows";
    return advance().catch(fail);
  };

  // --- deciding: always a list, so that a batch is one thing to undo ---
  async function send(decisions) {
    pending = decisions;
    setSaved("saving");
    const reply = await post("/api/decide", { decisions });
    pending = null;
    setSaved("saved");
    show(reply.state);
    return reply;
  }

  async function decide(decisions, again = false) {
    if (busy) return null;
    setBusy(true);
    try {
      const keyed = decisions.map((one) => ({ ...one, key: crypto.randomUUID() }));
      const reply = await send(keyed);
      done.push(keyed);
      if (!again) undone.length = 0;
      return reply;
    } catch (error) {
      fail(error);
      if (!(error instanceof Unreachable)) { pending = null; setSaved("saved"); }
      return null;
    } finally {
      setBusy(false);
    }
  }

  function reveal([found]) {
    if (!found) return;
    const labels = found.given === found.proposed ? `the run kept ${found.given}` : `it came as ${found.given ?? "no label"}, the run proposes ${found.proposed} (${percent(found.confidence, 0)})`;
    say(`You said ${found.label ?? "cannot tell"}; ${labels}.`);
  }

  async function answer(action, label) {
    const shown = current, hidden = blind();
    const reply = await decide([{ row: shown.row, action, label, queue: view === "estimate" ? "estimate" : "improve", blind: hidden, seen: true }]);
    if (!reply) return;
    say("");
    if (hidden) followed = 0;
    else if (label !== null || action === "accept" || action === "keep") followed = (action === "accept" || (label ?? shown.given) === shown.proposed) ? followed + 1 : 0;
    if (hidden && action !== "skip") reveal(reply.answers);
    setBusy(true); // no key may reach the row that was just answered
    await advance().catch(fail);
    setBusy(false);
  }

  async function undo() {
    if (busy) return;
    setBusy(true);
    try {
      const last = done.at(-1);
      const reply = await post("/api/undo", { keys: last?.map((one) => one.key) ?? null, blind: blind() });
      if (reply.rows.length) {
        if (last) { done.pop(); undone.push(last); }
        say(reply.rows.length === 1 ? `Undone: row ${reply.rows[0].id}.` : `Undone: all ${reply.rows.length} rows of the batch.`);
        if (view === "grid") await grid.open();
        else if (reply.rows.length === 1) { if (current) waiting.unshift(current); current = reply.rows[0]; paint(); }
        else { waiting.length = 0; await advance(); }
      } else say("You have no decision to undo.");
      show(reply.state);
    } catch (error) {
      fail(error);
    } finally {
      setBusy(false);
    }
  }

  async function redo() {
    const last = undone.pop();
    if (!last) return say("There is nothing to redo.");
    const batch = last.length > 1 ? crypto.randomUUID() : undefined;
    const reply = await decide(last.map(({ key: _, ...one }) => ({ ...one, ...(batch ? { batch } : {}) })), true);
    if (!reply) return;
    say(last.length === 1 ? "Done again." : `Redone: all ${last.length} rows of the batch.`);
    if (view === "grid") await grid.open().catch(fail);
    else { waiting.length = 0; await advance().catch(fail); }
  }

  function act(action, label = null) {
    if (busy) return;
    if (action === "undo") return undo();
    if (action === "redo") return redo();
    if (!current) return say("There is no row to answer.");
    if (action === "choose") return choose();
    return answer(action, label);
  }

  // Why a key does nothing here; null if it does something.
  function objection(letter) {
    if (!current) return "There is no row to answer.";
    if ((letter === "k" || letter === "a") && current.blind) return "Labels are hidden here: answer with the class itself, 1 to 9, or c to search.";
    if (letter === "k" && current.given === null) return "This row came without a label, so there is none to keep.";
    if (letter === "a" && current.given === current.proposed) return `No change is proposed: the run kept ${current.given}. k confirms it.`;
    if (/[1-9]/.test(letter) && Number(letter) > likely().length) return `There is no class ${letter}: the run has ${classes.length} classes.`;
    if (letter === "v" && current.look?.kind !== "image") return "This row has no picture to enlarge.";
    return null;
  }

  // --- another class: type to search ---
  let matches = [], marked = 0;

  function choose() {
    at("chooser").hidden = false;
    at("search").value = "";
    marked = 0;
    list();
    at("search").focus({ preventScroll: true });
    at("chooser").scrollIntoView({ block: "nearest" });
  }

  function list() {
    const words = at("search").value.toLowerCase();
    const first = classes.filter((name) => name.toLowerCase().startsWith(words));
    const rest = classes.filter((name) => !name.toLowerCase().startsWith(words) && name.toLowerCase().includes(words));
    matches = [...first, ...rest].slice(0, 50);
    marked = Math.min(marked, Math.max(matches.length - 1, 0));
    at("found").replaceChildren(...matches.map((name, k) => make("li", { role: "option", id: `option-${k}`, "aria-selected": k === marked ? "true" : "false", onclick: () => pick(name) }, name)));
    at("search").setAttribute("aria-activedescendant", matches.length ? `option-${marked}` : "");
    at(`option-${marked}`)?.scrollIntoView({ block: "nearest" });
  }

  function pick(name) {
    at("chooser").hidden = true;
    at("card").focus({ preventScroll: true });
    if (name !== undefined) act("label", name);
  }

  at("search").addEventListener("input", () => { marked = 0; list(); });
  at("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") matches.length ? pick(matches[marked]) : say("No class has that name.");
    else if (event.key === "Escape") pick();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      marked = Math.max(0, Math.min(matches.length - 1, marked + (event.key === "ArrowDown" ? 1 : -1)));
      list();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });

  // --- views ---
  const page = { get, decide, say, fail, classes };
  const grid = LabelLoop.grid(page), people = LabelLoop.people(page);

  function turnTo(next) {
    view = next;
    const one = view === "improve" || view === "estimate";
    at("one").hidden = !one;
    at("filter-box").hidden = view !== "improve";
    at("blind").disabled = view === "estimate";
    at("blind").setAttribute("aria-pressed", String(blind()));
    at("many").hidden = view !== "grid";
    at("disputes").hidden = view !== "disputes";
    at("people").hidden = view !== "people";
    at("purpose").textContent = VIEWS[view];
    for (const name of Object.keys(VIEWS)) at(`show-${name}`).setAttribute("aria-pressed", String(name === view));
    document.body.dataset.view = view;
    say("");
    const work = one ? restart() : view === "grid" ? grid.open() : people[view]();
    return work.catch(fail);
  }

  function turnBlind() {
    if (view === "estimate") return say("Random rows are always blind: they are for the estimate.");
    blindImprove = !blindImprove;
    return turnTo("improve").then(() => say(blindImprove ? "Labels are hidden until you have answered." : "Labels are shown."));
  }

  async function refit() {
    at("refit").disabled = true;
    say("Fitting the correction again with the decisions…");
    try {
      const reply = await post("/api/refit");
      const lines = reply.summary.split("\n"), start = lines.findIndex((line) => line.includes("new clean rows"));
      say("");
      at("message").replaceChildren(make("p", {}, `Fitted again: ${lines[start]}; ${lines[start + 1]}. `, reply.report ? make("a", { href: "/refitted", target: "_blank", rel: "noopener" }, "Report of the new run") : ""),
        make("p", {}, "This page still shows the old labels. To continue with the new ones: ", make("code", {}, `labelloop review ${reply.folder}`)),
        make("details", {}, make("summary", {}, "All of it"), make("pre", { tabindex: "0" }, reply.summary)));
      document.body.dataset.refitted = reply.folder;
    } catch (error) {
      fail(error);
    } finally {
      at("refit").disabled = false;
    }
  }

  for (const name of Object.keys(VIEWS)) at(`show-${name}`).addEventListener("click", () => turnTo(name));
  at("blind").addEventListener("click", turnBlind);
  at("refit").addEventListener("click", refit);
  at("show-help").addEventListener("click", () => at("help").showModal());
  at("help-close").addEventListener("click", () => at("help").close());
  at("zoom").addEventListener("click", () => at("zoom").close());
  at("filter").addEventListener("submit", (event) => { event.preventDefault(); restart(); });
  at("filter").addEventListener("change", restart);
  at("filter").addEventListener("reset", () => setTimeout(restart));
  goal.addEventListener("change", () => { localStorage.setItem("labelloop-goal", goal.value); get("/api/state").then(show).catch(fail); });
  named.addEventListener("change", () => {
    localStorage.setItem("labelloop-reviewer", named.value.trim());
    done.length = undone.length = 0;
    turnTo(view);
  });
  for (const key of ["given", "corrected"]) {
    document.querySelector(`#filter [data-filter=${key}]`).append(make("option", { value: "" }, "any"), ...classes.map((name) => make("option", { value: name }, name)));
  }

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || document.querySelector("dialog[open]")) return;
    const letter = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const everywhere = { z: event.shiftKey ? redo : undo, y: redo, g: () => turnTo("grid"), i: () => turnTo("improve"), e: () => turnTo("estimate"), d: () => turnTo("disputes"), b: turnBlind, "?": () => at("help").showModal() };
    if (everywhere[letter]) { event.preventDefault(); return everywhere[letter](); }
    if (view === "grid" && letter === "Enter" && event.target.tagName !== "BUTTON") return grid.save();
    if (letter.length > 1 || letter === " ") return;
    if (view !== "improve" && view !== "estimate") return say(`${letter} answers a single row: i goes to the rows, ? lists the keys.`);
    const actions = { k: "keep", a: "accept", c: "choose", "/": "choose", u: "unsure", s: "skip" };
    if (!actions[letter] && !/[1-9v]/.test(letter)) return say(`${letter} does nothing here; ? lists the keys.`);
    event.preventDefault();
    const why = objection(letter);
    if (why) return say(why);
    if (letter === "v") return cards.enlarge(current.look);
    return /[1-9]/.test(letter) ? act("label", likely()[Number(letter) - 1][0]) : act(actions[letter]);
  });

  // --- the server may stop and come back: this page waits for it ---
  async function watch() {
    if (document.visibilityState === "visible" && !busy) {
      try {
        if (pending) {
          const kept = pending;
          await send(kept);
          done.push(kept);
          say("The server is back, and your last answer is saved.");
          await restart();
        } else {
          const state = await get("/api/state");
          if (lost) { setSaved("saved"); say("The server is back; nothing was lost."); await restart(); }
          show(state);
        }
      } catch (error) {
        fail(error);
      }
    }
    setTimeout(watch, lost ? 1000 : 5000);
  }

  at("export-command").textContent = `labelloop export ${run}`;
  turnTo("improve").then(() => { document.body.dataset.ready = "yes"; setTimeout(watch, 5000); });
})();
