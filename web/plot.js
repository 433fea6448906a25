// What the report's pictures use of Observable Plot, and the layout of flows from d3-sankey.
export {
  areaY, axisX, axisY, barX, barY, cell, dot, frame, gridX, gridY, line, lineY, link, plot, pointer, rect, ruleX, ruleY,
  text, tip,
} from "@observablehq/plot";
export { sankey, sankeyJustify } from "d3-sankey";
