"use strict";
// Draws what the page carries.
{
  const data = LabelLoop.read("report-data");
  LabelLoop.pictures(data);
  const place = document.getElementById("row-table");
  if (place && data.rows && data.rows.count) {
    LabelLoop.rows(data, place).catch((error) => {
      place.replaceChildren(LabelLoop.make("p", { class: "nothing" }, `The table cannot be shown: ${error.message}`));
    });
  }
}
