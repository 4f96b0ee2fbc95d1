// Runs vector files in the browser, over its own database, and prints what
// `bounded-evidence conformance` prints: a line for each failure, then
// `N passed, M failed`. `cargo xtask conformance --browser FILE…` starts it.

import { readFile } from "node:fs/promises";
import { basename } from "node:path";

import { launch, pageUrl } from "./chromium.mjs";

const CLOSING_LINE = /^(\d+) passed, (\d+) failed$/;

const browser = await launch();
let passed = 0;
let failed = 0;
try {
  const page = await browser.newPage();
  await page.goto(pageUrl);
  for (const file of process.argv.slice(2)) {
    const report = await page.evaluate(checkVectors, [basename(file), await readFile(file, "utf8")]);
    const lines = report.split("\n");
    const counts = CLOSING_LINE.exec(lines.pop());
    if (!counts) {
      throw new Error(`${file}: the report has no closing line`);
    }
    passed += Number(counts[1]);
    failed += Number(counts[2]);
    for (const line of lines) {
      console.log(line);
    }
  }
} finally {
  await browser.close();
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;

/** Runs in the page, which serves the checks beside itself. */
async function checkVectors([fileName, lines]) {
  const module = await import(new URL("evidence_conformance.js", document.baseURI));
  await module.default();
  return module.checkVectors("conformance", fileName, lines);
}
