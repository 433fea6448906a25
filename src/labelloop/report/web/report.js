"use strict";
// Draws what the page carries. Every element with data-drill leads to the rows behind it.
{
  const data = LabelLoop.read("report-data");
  LabelLoop.pictures(data);
  if (LabelLoop.map) LabelLoop.map(data);
  const place = document.getElementById("row-table");
  if (place && data.rows && data.rows.count) {
    LabelLoop.rows(data, place).catch((error) => {
      place.replaceChildren(LabelLoop.make("p", { class: "nothing" }, `The table cannot be shown: ${error.message}`));
    });
  }
  addEventListener("click", (event) => {
    const from = event.target.closest?.("[data-drill]");
    if (from && LabelLoop.drill) LabelLoop.drill(JSON.parse(from.dataset.drill));
  });
}
