"use strict";
// Data that a page carries: JSON, columns of numbers, and text that was deflated to keep the file small.
const LabelLoop = {};

LabelLoop.read = (id) => JSON.parse(document.getElementById(id).textContent);

LabelLoop.bytes = (text) => {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
};

LabelLoop.inflate = async (text) => {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser cannot unpack the table; use one from 2023 or later");
  }
  const stream = new Blob([LabelLoop.bytes(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
};

LabelLoop.make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined)); // text nodes: nothing is parsed
  return node;
};

LabelLoop.percent = (value, digits = 1) =>
  value === null || value === undefined || Number.isNaN(value) ? "–" : `${(100 * value).toFixed(digits)}%`;

// A colour for each of the largest classes, the same in every picture; the others share one.
LabelLoop.COLOURS = ["--blue", "--orange", "--green", "--purple", "--sky", "--red", "--given"];
LabelLoop.colourOf = (data) => {
  const places = new Map((data.by_size ?? []).map((code, place) => [code, place]));
  return (code) => LabelLoop.COLOURS[places.get(code)] ?? "--soft";
};

LabelLoop.count = (value) => value.toLocaleString("en-US");
