// Bundles the chart library for the report, with the licences of every package that went in. Run: make web
import { readFileSync, existsSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const target = "../src/labelloop/report/web";
const result = await build({
  entryPoints: ["plot.js"],
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "Plot",
  charset: "ascii", // no byte of the bundle depends on how a page is encoded
  legalComments: "none", // the licences stand beside it, whole
  metafile: true,
  outfile: `${target}/plot.js`,
});
const packages = new Set();
for (const path of Object.keys(result.metafile.inputs)) {
  const found = path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//g);
  if (found) packages.add(found.at(-1).replace("node_modules/", "").replace(/\/$/, ""));
}
const parts = [...packages].sort().map((name) => {
  const folder = `node_modules/${name}`;
  const about = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = ["LICENSE", "LICENSE.md", "license", "LICENCE"].map((n) => `${folder}/${n}`).find(existsSync);
  const text = file ? readFileSync(file, "utf8").trim() : `Licence: ${about.license}`;
  return `${name} ${about.version} (${about.license})\n\n${text}\n`;
});
writeFileSync(`${target}/plot.LICENSES.txt`, parts.join(`\n${"-".repeat(80)}\n\n`));
console.log(`${packages.size} packages, ${result.metafile.outputs[`${target}/plot.js`].bytes} bytes`);
