"use strict";
// The pictures of a report, drawn with Observable Plot. Each comes with its numbers as a table.
LabelLoop.pictures = (() => {
  const { make, percent, count } = LabelLoop;
  const colours = ["var(--blue)", "var(--orange)", "var(--green)", "var(--purple)", "var(--sky)", "var(--red)"];
  const short = (text, most = 16) => (String(text).length > most ? `${String(text).slice(0, most - 1)}…` : String(text));
  const margin = (names, most = 16) => 14 + 7 * Math.min(most, Math.max(2, ...names.map((name) => String(name).length)));
  const base = (width, options) => Plot.plot({ width, ...(options.margin === undefined ? { marginBottom: 40 } : {}), style: { background: "none", fontSize: "12px" }, ...options });

  const drill = (wanted) => LabelLoop.drill?.(wanted);
  const READABLE = 12; // classes whose names fit beside a matrix
  let hasRows = false, colourOf = null; // of the page that is drawn

  // A matrix of some classes, drawn with their names if they are few.
  function matrix(data, from, to, width, clicked) {
    const codes = Array.from({ length: to - from }, (_, k) => from + k), names = codes.map((k) => data.classes[k]);
    const cells = data.cells.filter(([i, j]) => i >= from && i < to && j >= from && j < to)
      .map(([i, j, share, rows]) => ({ i, j, truth: data.classes[i], given: data.classes[j], share, rows }));
    const letters = width < 420 ? 14 : 22;
    const few = names.length <= READABLE, side = few ? margin(names, letters) : 24, below = few ? 0.72 * side : 24; // slanted names are lower than long
    const size = Math.max(1, Math.min(56, (width - side - 24) / names.length));
    const most = Math.max(0.01, ...cells.filter((d) => d.i !== d.j).map((d) => d.share));
    const svg = base(Math.min(width, side + 24 + size * names.length), {
      height: below + size * names.length + 44,
      marginLeft: side + 14, marginBottom: below + 20, marginTop: 10,
      x: { domain: codes, label: "given label", ticks: few ? codes : [], tickFormat: (k) => short(data.classes[k], letters), tickRotate: names.length > 5 || side > 60 ? -45 : 0, tickSize: 0 },
      y: { domain: codes, label: "true class", ticks: few ? codes : [], tickFormat: (k) => short(data.classes[k], letters), tickSize: 0 },
      marks: [
        Plot.cell(cells, { x: "j", y: "i", fill: (d) => (d.i === d.j ? "var(--blue)" : "var(--orange)"), fillOpacity: { value: (d) => (d.i === d.j ? 0.1 + 0.35 * d.share : (few ? 0.05 : 0.15) + (few ? 0.45 : 0.85) * Math.sqrt(d.share / most)), scale: null }, inset: few ? 0.5 : 0 }),
        few && size >= 34
          ? Plot.text(cells, { x: "j", y: "i", text: (d) => (100 * d.share).toFixed(d.share < 0.095 ? 1 : 0), fill: "currentColor", fontSize: 11, pointerEvents: "none" })
          : null,
        Plot.tip(cells, Plot.pointer({
          x: "j", y: "i",
          title: (d) => `true ${d.truth}, given ${d.given}\n${percent(d.share)} of the class, about ${count(Math.round(d.rows))} rows`,
        })),
      ],
    });
    svg.addEventListener("click", () => { if (svg.value) clicked(svg.value); });
    return svg;
  }

  function noise(data, width) {
    const name = (each) => `${each.true} labelled ${each.given}`;
    const list = make("ul", { class: "confusions" }, ...data.confusions.map((each) => make("li", {},
      hasRows ? make("button", { type: "button", class: "link", "data-drill": JSON.stringify({ given: each.given_code, corrected: each.true_code }) }, name(each)) : make("b", {}, name(each)),
      make("span", { class: "says" }, `${percent(each.share)} of the class, about ${count(Math.round(each.rows))} rows`))));
    const toRows = (cell) => { if (cell.i !== cell.j) drill({ given: data.codes[cell.j], corrected: data.codes[cell.i] }); };
    const size = data.classes.length;
    if (size <= READABLE) return make("div", {}, matrix(data, 0, size, width, toRows), list);
    const near = make("div", {}, make("p", { class: "says" }, "Confused classes are next to each other. Click into the matrix to see a part of it with names."));
    const zoom = ({ i, j }) => {
      const from = Math.max(0, Math.min(size - READABLE, Math.round((i + j) / 2) - READABLE / 2));
      near.replaceChildren(make("p", { class: "says" }, `Classes ${from + 1} to ${from + READABLE} of ${size}:`), matrix(data, from, from + READABLE, width, toRows));
      label(near, "A part of the matrix");
    };
    return make("div", {}, make("h4", {}, "The largest confusions"), list, matrix(data, 0, size, Math.min(width, 420), zoom), near);
  }

  function noiseTable(data) {
    return {
      head: ["true", "given", "share of the class", "rows, about"],
      lines: data.cells.filter(([i, j]) => i !== j).sort((a, b) => b[3] - a[3]).slice(0, 200)
        .map(([i, j, share, rows]) => [data.classes[i], data.classes[j], percent(share), count(Math.round(rows))]),
      note: data.all_classes > data.classes.length
        ? `The ${data.classes.length} of ${data.all_classes} classes with the most wrong labels.` : "",
    };
  }

  function flows(data, width) {
    const nodes = new Map();
    const node = (side, name, code) => {
      const key = `${side} ${name}`;
      if (!nodes.has(key)) nodes.set(key, { key, side, name, code });
      return key;
    };
    const links = data.flows.map((flow) => ({
      source: node("given", flow.from, flow.from_code), target: node("corrected", flow.to, flow.to_code), value: flow.rows, flow,
    }));
    const names = [...nodes.values()].map((each) => each.name);
    const letters = width < 420 ? 11 : 20; // of a name
    const side = 48 + 7 * Math.min(letters, Math.max(2, ...names.map((name) => name.length)));
    const height = Math.max(260, 26 * Math.max(...["given", "corrected"].map((s) => [...nodes.values()].filter((n) => n.side === s).length)) + 60);
    const graph = Plot.sankey().nodeId((d) => d.key).nodeWidth(10).nodePadding(12).nodeSort(null)
      .extent([[side, 24], [width - side, height - 6]])({ nodes: [...nodes.values()], links });
    const colour = (each) => `var(${colourOf(each.code)})`;
    const ofLink = (d) => colour(colourOf(d.source.code) === "--soft" ? d.target : d.source);
    const svg = base(width, {
      height, margin: 0,
      x: { type: "identity", axis: null }, y: { type: "identity", axis: null },
      marks: [
        Plot.link(graph.links, {
          x1: (d) => d.source.x1, y1: "y0", x2: (d) => d.target.x0, y2: "y1", curve: "bump-x",
          stroke: ofLink, strokeWidth: (d) => Math.max(1, d.width), strokeOpacity: 0.45,
          title: (d) => `${d.flow.from} → ${d.flow.to}: ${count(d.value)} rows`,
        }),
        Plot.rect(graph.nodes, { x1: "x0", x2: "x1", y1: "y0", y2: "y1", fill: (d) => colour(d) }),
        Plot.text(graph.nodes.filter((d) => d.side === "given"), {
          x: (d) => d.x0 - 4, y: (d) => (d.y0 + d.y1) / 2, text: (d) => `${short(d.name, letters)} ${count(d.value)}`, textAnchor: "end",
        }),
        Plot.text(graph.nodes.filter((d) => d.side === "corrected"), {
          x: (d) => d.x1 + 4, y: (d) => (d.y0 + d.y1) / 2, text: (d) => `${short(d.name, letters)} ${count(d.value)}`, textAnchor: "start",
        }),
        Plot.text(["given"], { x: () => 0, y: () => 10, text: (d) => d, textAnchor: "start", fontWeight: "bold" }),
        Plot.text(["corrected"], { x: () => width, y: () => 10, text: (d) => d, textAnchor: "end", fontWeight: "bold" }),
      ],
    });
    const paths = svg.querySelectorAll("g[aria-label=link] path");
    graph.links.forEach((link, k) => paths[k]?.setAttribute("data-drill", JSON.stringify({ given: link.flow.from_code, corrected: link.flow.to_code })));
    for (const path of paths) path.style.cursor = "pointer";
    return svg;
  }

  function flowsTable(data) {
    return {
      head: ["given", "corrected", "rows"],
      lines: data.flows.map((flow) => [flow.from, flow.to, count(flow.rows)]),
      note: data.left_out ? `The ${data.flows.length} largest of ${data.all_flows} flows; the others have ${count(data.left_out)} rows.` : "",
    };
  }

  function dynamics(data, width) {
    const accuracy = data.curves.flatMap((curve) =>
      data.epochs.map((epoch, k) => ({ epoch, value: curve.values[k], name: curve.name })).filter((d) => d.value !== null)
    );
    const loss = data.epochs.map((epoch, k) => ({ epoch, value: data.loss[k] })).filter((d) => d.value !== null);
    const marks = [
      Plot.ruleX(data.rounds, { stroke: "currentColor", strokeDasharray: "1 3", strokeOpacity: 0.7 }),
      Plot.ruleX(data.drops, { stroke: "currentColor", strokeDasharray: "6 4", strokeOpacity: 0.7 }),
    ];
    const x = { label: "epoch", domain: [Math.min(0, ...data.epochs), Math.max(...data.epochs)] };
    const parts = [];
    if (accuracy.length) {
      parts.push(base(width, {
        height: 220, x, y: { label: "accuracy", percent: true, grid: true, nice: true },
        color: { legend: true, domain: data.curves.map((c) => c.name), range: colours },
        marks: [...marks,
          Plot.line(accuracy, { x: "epoch", y: "value", stroke: "name", strokeWidth: 2 }),
          Plot.tip(accuracy, Plot.pointer({ x: "epoch", y: "value", title: (d) => `${d.name}\nepoch ${d.epoch}: ${percent(d.value)}` }))],
      }));
    }
    if (loss.length) {
      parts.push(base(width, {
        height: 150, x, y: { label: "loss", grid: true, nice: true },
        marks: [...marks, Plot.line(loss, { x: "epoch", y: "value", stroke: "currentColor" })],
      }));
    }
    return make("div", {}, ...parts);
  }

  function dynamicsTable(data) {
    return {
      head: ["epoch", "loss", ...data.curves.map((c) => c.name), "round", "learning rate drops"],
      lines: data.epochs.map((epoch, k) => [
        epoch, data.loss[k] === null ? "–" : data.loss[k].toFixed(4), ...data.curves.map((c) => percent(c.values[k])),
        data.rounds.includes(epoch) ? "yes" : "", data.drops.includes(epoch) ? "yes" : "",
      ]),
    };
  }

  function weights(data, width) {
    const components = [...new Set(data.bars.map((d) => d.component))];
    const rounds = [...new Set(data.bars.map((d) => d.round))];
    return base(width, {
      height: data.kind === "rounds" ? 240 : 120,
      marginLeft: data.kind === "rounds" ? 44 : 130,
      color: { legend: true, domain: components, range: components.map((_, k) => colours[k % colours.length]) },
      ...(data.kind === "rounds"
        ? {
            x: { label: "round", type: "band", domain: rounds }, y: { label: "weight", grid: true, domain: [0, 1] },
            marks: [Plot.barY(data.bars, { x: "round", y: "weight", fill: "component", stroke: "var(--paper)", title: (d) => `round ${d.round}: ${d.component} ${d.weight}` })],
          }
        : {
            y: { label: null, domain: rounds }, x: { label: "weight", domain: [0, 1] },
            marks: [Plot.barX(data.bars, { y: "round", x: "weight", fill: "component", stroke: "var(--paper)", title: (d) => `${d.component} ${d.weight}` })],
          }),
    });
  }

  const weightsTable = (data) => ({
    head: [data.kind === "rounds" ? "round" : "rows", "source", "weight"],
    lines: data.bars.map((d) => [d.round, d.component, d.weight.toFixed(3)]),
  });

  function reliability(data, width) {
    const side = Math.min(width, 420), bins = data.bins.filter((d) => d.rows >= 5);
    return base(side, {
      height: Math.min(side, 340), x: { label: "confidence (%)", domain: [0, 100], percent: true, grid: true },
      y: { label: "right (%)", domain: [0, 100], percent: true, grid: true },
      marks: [
        Plot.line([[0, 0], [1, 1]], { stroke: "currentColor", strokeOpacity: 0.5, strokeDasharray: "4 3" }),
        Plot.ruleX(bins, { x: "confidence", y1: "low", y2: "high", stroke: "var(--blue)", strokeWidth: 2 }),
        Plot.dot(bins, { x: "confidence", y: "value", fill: "var(--blue)", r: 4 }),
        Plot.text(bins, { x: "confidence", y: "value", text: (d) => count(d.rows), dx: 8, dy: -8, textAnchor: "start", fontSize: 11, stroke: "var(--panel)", strokeWidth: 3, fill: "currentColor", paintOrder: "stroke" }),
        Plot.tip(bins, Plot.pointer({ x: "confidence", y: "value", title: (d) => `${count(d.rows)} clean rows, confidence ${percent(d.confidence)}\n${percent(d.value)} right (${percent(d.low)} to ${percent(d.high)})` })),
      ],
    });
  }

  const reliabilityTable = (data) => ({
    head: ["confidence", "clean rows", "right", "95% interval"],
    lines: data.bins.map((d) => [`${percent(d.from, 0)} to ${percent(d.to, 0)}`, count(d.rows), percent(d.value), `${percent(d.low)} to ${percent(d.high)}`]),
  });

  function coverage(data, width) {
    const measured = data.points.filter((d) => d.right).map((d) => ({ ...d.right, least: d.least, changes: d.changes }));
    const claimed = data.points.filter((d) => d.claimed !== null);
    const top = base(width, {
      height: 190, x: { label: null, domain: [0, 100], percent: true }, y: { label: "right (%)", percent: true, grid: true, nice: true },
      color: { legend: true, domain: ["measured on held-out clean rows", "what the confidence claims"], range: ["var(--blue)", "var(--orange)"] },
      marks: [
        measured.length ? Plot.areaY(measured, { x: "least", y1: "low", y2: "high", fill: "var(--blue)", fillOpacity: 0.18 }) : null,
        measured.length ? Plot.line(measured, { x: "least", y: "value", stroke: "var(--blue)", strokeWidth: 2, marker: "dot" }) : null,
        Plot.line(claimed, { x: "least", y: "claimed", stroke: "var(--orange)", strokeDasharray: "5 3", strokeWidth: 2, marker: "dot" }),
        Plot.tip(claimed, Plot.pointer({ x: "least", y: "claimed", title: (d) => `at ${d.least}: ${count(d.changes)} changes, ${percent(d.claimed)} claimed${d.right ? `, ${percent(d.right.value)} measured` : ""}` })),
      ],
    });
    const bottom = base(width, {
      height: 130, x: { label: "least confidence (%)", domain: [0, 100], percent: true }, y: { label: "changes left", grid: true, zero: true },
      marks: [Plot.areaY(data.points, { x: "least", y: "changes", fill: "var(--green)", fillOpacity: 0.3 }),
        Plot.line(data.points, { x: "least", y: "changes", stroke: "var(--green)", strokeWidth: 2, marker: "dot" })],
    });
    return make("div", {}, top, bottom);
  }

  const coverageTable = (data) => ({
    head: ["least confidence", "changes", "right, measured", "95% interval", "right, claimed"],
    lines: data.points.map(({ right, ...d }) => [d.least, count(d.changes), right ? percent(right.value) : "–", right ? `${percent(right.low)} to ${percent(right.high)}` : "–", percent(d.claimed)]),
  });

  function seconds(data, width) {
    return base(width, {
      height: 60 + 28 * data.phases.length, marginLeft: margin(data.phases.map((d) => d.phase)) + 6, marginRight: 50,
      x: { label: "seconds", grid: true }, y: { label: null },
      marks: [Plot.barX(data.phases, { y: "phase", x: "seconds", fill: "var(--blue)", sort: { y: "-x" } }),
        Plot.text(data.phases, { y: "phase", x: "seconds", text: (d) => d.seconds.toFixed(1), dx: 4, textAnchor: "start" })],
    });
  }

  const secondsTable = (data) => ({ head: ["phase", "seconds"], lines: data.phases.map((d) => [d.phase, d.seconds.toFixed(2)]) });

  function compare(data, width) {
    const runs = [...new Set(data.points.map((d) => d.run))];
    return base(width, {
      height: 70 + 30 * runs.length, marginLeft: margin(runs) + 10,
      x: { label: "labels that are right", percent: true, grid: true, nice: true }, y: { label: null, domain: runs, tickFormat: (d) => short(d, 18) },
      color: { legend: true, domain: ["given", "corrected"], range: ["var(--orange)", "var(--blue)"] },
      marks: [
        Plot.ruleY(data.points, { y: "run", x1: "low", x2: "high", stroke: "what", strokeWidth: 2 }),
        Plot.dot(data.points, { y: "run", x: "value", fill: "what", r: 5, symbol: "what" }),
        Plot.tip(data.points, Plot.pointer({ y: "run", x: "value", title: (d) => `${d.run}\n${d.what}: ${percent(d.value)} (${percent(d.low)} to ${percent(d.high)})` })),
      ],
    });
  }

  const compareTable = (data) => ({
    head: ["run", "labels", "right", "95% interval"],
    lines: data.points.map((d) => [d.run, d.what, percent(d.value), `${percent(d.low)} to ${percent(d.high)}`]),
  });

  function tests(data, width) {
    const settings = [...new Set(data.points.map((d) => d.setting))];
    const means = settings.map((setting) => {
      const values = data.points.filter((d) => d.setting === setting).map((d) => d.value);
      return { setting, value: values.reduce((a, b) => a + b, 0) / values.length };
    });
    return base(width, {
      height: 60 + 30 * settings.length, marginLeft: 150,
      x: { label: "test accuracy", percent: true, grid: true, nice: true }, y: { label: null, domain: settings, tickFormat: (d) => short(d, 22) },
      marks: [Plot.dot(data.points, { y: "setting", x: "value", fill: "var(--blue)", fillOpacity: 0.6, r: 4, title: (d) => `${d.run}: ${percent(d.value)}` }),
        Plot.text(means, { y: "setting", x: "value", text: () => "|", fontSize: 20, fill: "currentColor" })],
    });
  }

  const testsTable = (data) => ({ head: ["setting", "run", "test accuracy"], lines: data.points.map((d) => [d.setting, d.run, percent(d.value)]) });

  function curves(data, width) {
    const settings = [...new Set(data.points.map((d) => d.setting))];
    return base(width, {
      height: 260, x: { label: "epoch" }, y: { label: "test accuracy", percent: true, grid: true, nice: true },
      color: { legend: settings.length <= 6, domain: settings, range: settings.map((_, k) => colours[k % colours.length]), tickFormat: (d) => short(d, 30) },
      marks: [Plot.line(data.points, { x: "epoch", y: "value", z: "run", stroke: "setting" }),
        Plot.tip(data.points, Plot.pointer({ x: "epoch", y: "value", title: (d) => `${d.run}\nepoch ${d.epoch}: ${percent(d.value)}` }))],
    });
  }

  function curvesTable(data) {
    const last = new Map();
    for (const point of data.points) last.set(point.run, point);
    return { head: ["run", "last epoch", "test accuracy"], lines: [...last.values()].map((d) => [d.run, d.epoch, percent(d.value)]) };
  }

  // Of every picture: its title, what it shows, what a click does where there are changed rows; how it is drawn, and its
  // numbers. The map draws itself.
  const kinds = {
    map: {
      title: "Map of the rows", says: "Similar rows tend to lie together.", full: true,
      click: "A ring marks a changed label. Draw around dots to see them in the table.",
    },
    noise: {
      title: "What was confused", says: "Of the rows of each true class, the share in % that came with each given label.",
      click: "Click a cell to see its changes.", picture: noise, numbers: noiseTable,
    },
    flows: {
      title: "Where labels went", says: "Changed labels, from the given class to the corrected one.",
      click: "Click one to see its rows.", picture: flows, numbers: flowsTable,
    },
    coverage: {
      title: "How many changes to trust", picture: coverage, numbers: coverageTable,
      says: "A higher minimum confidence leaves fewer changes, of which more are right.",
    },
    reliability: {
      title: "Are the confidences right?", picture: reliability, numbers: reliabilityTable,
      says: "On the diagonal, labels with 80% confidence are right in 80 of 100 rows. Each dot has its number of clean rows (at least 5) and a line for its 95% interval.",
    },
    dynamics: {
      title: "Training", says: "By epoch. Dotted: a round of correction. Dashed: the learning rate drops.", picture: dynamics, numbers: dynamicsTable,
    },
    weights: { title: "What the labels are made of", says: "The weight of each part in the corrected labels.", picture: weights, numbers: weightsTable },
    seconds: { title: "Time", says: "Seconds of every phase, over all epochs.", picture: seconds, numbers: secondsTable },
    compare: {
      title: "Labels that are right", says: "Given and corrected, on held-out clean rows, with 95% intervals.", picture: compare, numbers: compareTable,
    },
    tests: { title: "Test accuracy", says: "After the last epoch. One dot per run; the bar is the mean over seeds.", picture: tests, numbers: testsTable },
    curves: { title: "Test accuracy by epoch", says: "One line per run.", picture: curves, numbers: curvesTable },
  };

  function table({ head, lines, note }, title) {
    const body = lines.map((line) => make("tr", {}, ...line.map((cell, k) => (k ? make("td", {}, String(cell)) : make("th", { scope: "row" }, String(cell))))));
    return make("details", { class: "numbers" },
      make("summary", {}, "The numbers"),
      note ? make("p", { class: "says" }, note) : null,
      make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `${title}: the numbers` },
        make("table", {}, make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, String(name))))), make("tbody", {}, ...body))));
  }

  function label(chart, title) {
    for (const svg of chart.querySelectorAll("svg")) {
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", title);
    }
    for (const node of chart.querySelectorAll("svg [aria-label], svg [aria-description]")) {
      node.removeAttribute("aria-label"); // the picture as a whole has a name; its parts are in the table
      node.removeAttribute("aria-description");
    }
  }

  function frame(figure, { title, says, click, full }, here) {
    figure.classList.toggle("full", full === true);
    const words = `${says} ${hasRows && click ? click : ""}`;
    figure.append(make("h3", {}, title), ...(here ? [make("p", { class: "here" }, here)] : []), make("p", { class: "says" }, words), make("div", { class: "chart" }));
  }

  function draw(figure, data) {
    const name = figure.dataset.picture, kind = kinds[name], found = data.pictures[name];
    if (!figure.firstChild) frame(figure, kind, found.here);
    if (!kind.picture) return;
    const place = figure.querySelector(".chart");
    place.replaceChildren(kind.picture(found, Math.max(280, Math.floor(place.clientWidth))));
    label(place, kind.title);
    if (!figure.querySelector("details.numbers")) figure.append(table(kind.numbers(found), kind.title));
  }

  return (data) => {
    hasRows = Boolean(data.rows?.count);
    colourOf = LabelLoop.colourOf(data);
    const figures = [...document.querySelectorAll("figure[data-picture]")];
    const all = () => figures.forEach((figure) => draw(figure, data));
    all();
    let width = document.documentElement.clientWidth;
    let waiting = 0;
    addEventListener("resize", () => {
      if (Math.abs(document.documentElement.clientWidth - width) < 8) return;
      width = document.documentElement.clientWidth;
      clearTimeout(waiting);
      waiting = setTimeout(all, 150);
    });
  };
})();
