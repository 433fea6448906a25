"use strict";
// What a row looks like on the review page: a picture to enlarge, a whole text, or a table beside its nearest clean rows.
LabelLoop.cards = (() => {
  const { make, percent } = LabelLoop;
  const LINES = 12; // columns of a table that are shown at once
  const BESIDE = 4; // clean rows beside it; a phone shows two

  // A name that may break after an underscore, a dot or a hyphen, and not in the middle of a word.
  const breakable = (name) => name.split(/(?<=[_.\-/])/).flatMap((part) => [part, make("wbr")]);

  const own = (name) => `\u2068${name ?? "?"}\u2069`; // a name written from right to left must not move the words around it

  const source = (look) => `data:image/${look.jpeg.startsWith("iVBOR") ? "png" : "jpeg"};base64,${look.jpeg}`;

  function enlarge(look) {
    const box = document.getElementById("zoom");
    box.replaceChildren(make("img", { src: source(look), alt: "the row, enlarged" }));
    box.showModal();
  }

  function picture(look, big) {
    const image = make("img", { src: source(look), alt: big ? "the row to review" : "", class: big ? "big" : "small" });
    return big ? make("button", { type: "button", class: "image", "aria-label": "Enlarge the picture (v)", onclick: () => enlarge(look) }, image) : image;
  }

  // The text with the words marked that speak for one of two classes.
  function marked(text, words, first, speaks) {
    const parts = text.split(/(\p{L}{3,})/u);
    return parts.map((part) => {
      const of = words?.[part.toLowerCase()];
      return of === undefined ? part : make("mark", { class: of === first ? "first" : "second", title: `${speaks} ${of}` }, part);
    });
  }

  function text(card) {
    const words = card.words ?? {}, classes = [...new Set(Object.values(words))];
    const first = card.given ?? classes[0];
    const [speaks, how] = card.words_by === "learners"
      ? ["makes the learners lean to", "by a simple model of what they predict."]
      : ["is more common in rows labelled", "counted in the texts of the run, which keeps no learner that could say so."];
    const legend = classes.map((name) => make("span", {}, "A word ", make("mark", { class: name === first ? "first" : "second" }, "marked like this"), ` ${speaks} ${name}, `));
    return [make("blockquote", { class: "big", dir: "auto" }, ...marked(card.look.text, words, first, speaks)), legend.length ? make("p", { class: "says" }, ...legend, how) : null];
  }

  // The row and its nearest clean rows as one table: a line for each column, the most telling first, differences marked.
  function compare(card) {
    const mine = card.look.values, near = card.near.filter((each) => each.look?.kind === "values").slice(0, BESIDE);
    const order = card.order?.length === mine.length ? card.order : mine.map((_, k) => k);
    const lines = order.map((k, place) => make("tr", { class: place < LINES ? "" : "later" },
      make("th", { scope: "row" }, ...breakable(mine[k][0])),
      make("td", { class: "mine" }, mine[k][1] === "" ? "(blank)" : mine[k][1]),
      ...near.map((each, n) => make("td", { class: `${each.differs[k] ? "differs" : "same"}${n > 1 ? " far" : ""}` },
        each.look.values[k][1] === "" ? "(blank)" : each.look.values[k][1], each.differs[k] ? make("span", { class: "unseen" }, " (differs)") : null))));
    const head = make("tr", {}, make("th", { scope: "col" }, "column"), make("th", { scope: "col" }, make("b", {}, "this row")),
      ...near.map((each, n) => make("th", { scope: "col", class: n > 1 ? "far" : "" }, make("b", {}, each.label ?? "?"), "clean row")));
    const table = make("table", { class: "compare" }, make("caption", { class: "unseen" }, "The row next to its nearest clean rows"),
      make("thead", {}, head), make("tbody", {}, ...lines));
    const more = make("button", { type: "button", onclick: () => { table.classList.add("all"); more.remove(); } }, `Show ${lines.length - LINES} more columns`);
    const says = near.length
      ? `Next to it: its nearest clean rows. A bar and a colour mark values that differ; columns that separate the two classes come first.`
      : card.blind ? "Blind: no other rows are shown." : "There are no clean rows to compare it with.";
    return [table, lines.length > LINES ? more : null, make("p", { class: "says" }, says)];
  }

  function whole(card) {
    if (!card.look) return [make("p", { class: "nothing" }, "The run stores no picture, text or values of this row.")];
    if (card.look.kind === "image") return [picture(card.look, true)];
    return card.look.kind === "text" ? text(card) : compare(card);
  }

  function small(look, order = []) {
    if (!look) return make("p", { class: "nothing" }, "nothing is kept of this row");
    if (look.kind === "image") return picture(look, false);
    if (look.kind === "text") return make("blockquote", { tabindex: "0", dir: "auto" }, look.text);
    const values = order.length === look.values.length ? order.map((k) => look.values[k]) : look.values;
    return make("dl", {}, ...values.slice(0, LINES).flatMap(([name, value]) => [make("dt", {}, ...breakable(name)), make("dd", {}, value === "" ? "(blank)" : value)]));
  }

  // The nearest clean rows below a picture or a text; a table has them beside it.
  function nearest(card) {
    if (card.blind || card.look?.kind === "values" && card.near.length) return [];
    const list = card.near.map((each) => make("li", {}, make("b", {}, each.label ?? "?"), small(each.look)));
    return [make("h2", {}, "Nearest clean rows"), list.length ? make("ul", {}, ...list) : make("p", { class: "nothing" }, "The run has none, or no features to find them with.")];
  }

  function why(card) {
    const counts = new Map();
    for (const each of card.near) counts.set(each.label, (counts.get(each.label) ?? 0) + 1);
    const votes = [...counts].sort((a, b) => b[1] - a[1]).map(([label, rows]) => `${rows} ${own(label)}`);
    const of = card.of_given, given = own(card.given), proposed = own(card.proposed);
    const lines = [
      ...(card.votes ?? []).map((vote) => `${vote.who}: ${own(vote.label)} (${percent(vote.p, 0)})`),
      votes.length ? `the ${card.near.length} nearest clean rows: ${votes.join(", ")}` : null,
      of ? `the noise: of all rows given ${given}, about ${percent(of.right, 0)} are ${given}` + (given === proposed ? "" : ` and ${percent(of.proposed, 0)} are ${proposed}`) : null,
    ].filter((line) => line !== null);
    const odds = (card.likely ?? []).filter(([, p]) => p !== null).slice(0, 2).map(([name, p]) => `${own(name)} ${percent(p, 0)}`);
    const sum = odds.length ? make("li", {}, make("b", {}, `weighed by the clean rows: ${odds.join(", ")}`)) : null;
    return lines.length ? make("div", {}, make("ul", {}, ...lines.map((line) => make("li", {}, line)), sum), card.votes?.length ? make("p", { class: "says" }, "Learners were also trained on the given labels, including the wrong ones; clean rows show how far to trust them.") : null) : make("p", { class: "nothing" }, "The run stores nothing that could show it.");
  }

  return { whole, small, nearest, why, enlarge };
})();
