"use strict";
// Several reviewers: disagreements to settle, and how well and how fast each of them answers.
LabelLoop.people = (page) => {
  const { make, percent, count } = LabelLoop;
  const FEW = 10; // rows that say nothing about agreement beyond chance

  async function disputes() {
    const place = document.getElementById("disputes");
    const { rows } = await page.get("/api/disputes");
    const settle = (row, label) => async () => {
      if (await page.decide([{ row: row.row, action: "label", label, queue: "settle" }])) {
        page.say(`Row ${row.id} is settled: ${label}.`);
        await disputes();
      }
    };
    const another = (row) => {
      const choice = make("select", { "aria-label": `another class for row ${row.id}`, onchange: () => { if (choice.value) settle(row, choice.value)(); } },
        make("option", { value: "" }, "Settle: another class…"), ...page.classes.map((name) => make("option", { value: name }, name)));
      return choice;
    };
    const list = rows.map((row) => {
      const said = Object.entries(row.answers);
      const labels = [...new Set(said.map(([, label]) => label).filter((label) => label !== null))];
      return make("section", { class: "panel dispute-row", "aria-label": `row ${row.id}` },
        make("div", {}, make("h3", {}, `row ${row.id}`),
          make("p", {}, ...said.map(([name, label], k) => make("span", {}, k ? ", " : "", `${name} says `, make("b", {}, label ?? "cannot tell")))),
          make("p", { class: "says" }, `given ${row.given ?? "none"}, proposed ${row.proposed ?? "none"}`), ...LabelLoop.cards.whole(row).filter((each) => each !== null)),
        make("div", { class: "pick" }, ...labels.map((label) => make("button", { type: "button", onclick: settle(row, label) }, `Settle: ${label}`)), another(row)));
    });
    place.replaceChildren(make("p", { class: "says" }, rows.length
      ? "Reviewers chose different classes here, so these rows are not used until one of you settles them. Both answers are kept."
      : "There are no disagreements. Every tenth row of a reviewer is one that somebody else has answered."), ...list);
  }

  const table = (caption, head, lines) => make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    make("table", {}, make("caption", { class: "unseen" }, caption), make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...lines.map((line) => make("tr", {}, ...line.map((cell, k) => (k ? make("td", {}, cell) : make("th", { scope: "row" }, cell))))))));

  async function people() {
    const place = document.getElementById("people");
    const found = await page.get("/api/people");
    const parts = [make("h2", {}, "Reviewers"), table("Reviewers", ["name", "decisions", "rows an hour", "wrong against settled rows"],
      found.reviewers.map((each) => [each.name, count(each.decisions), each.rows_per_hour === null ? "–" : count(Math.round(each.rows_per_hour)),
        each.wrong === null ? "no settled row" : `${percent(each.wrong.value)} (${percent(each.wrong.low)} to ${percent(each.wrong.high)}, ${each.wrong.rows} rows)`]))];
    if (found.pairs.length) {
      parts.push(make("h2", {}, "Agreement"), table("Agreement of two reviewers", ["reviewers", "rows both labelled", "same label", "Cohen's kappa"],
        found.pairs.map((each) => [each.who.join(" and "), count(each.rows), percent(each.agreed / each.rows), each.rows < FEW ? "too few rows" : each.kappa === null ? "–" : each.kappa.toFixed(2)])),
        make("p", { class: "says" }, "Kappa is agreement beyond chance: 0 is what chance alone gives, 1 is full agreement."),
        make("h2", {}, "Agreement by class"), table("Agreement by class", ["class", "rows where somebody chose it", "all agreed"],
          found.by_class.map((each) => [each.class, count(each.rows), percent(each.agreed / each.rows, 0)])));
    } else parts.push(make("p", { class: "says" }, "Agreement needs rows that two people have answered."));
    place.replaceChildren(...parts);
  }

  return { disputes, people };
};
