// Checks vector files in the browser and prints the report; `cargo xtask conformance` calls it.

import { readFile } from "node:fs/promises";
import { basename } from "node:path";

import { launch, pageUrl } from "./chromium.mjs";

const browser = await launch();
try {
  const page = await browser.newPage();
  await page.goto(pageUrl);
  let passed = 0;
  let failed = 0;
  for (const path of process.argv.slice(2)) {
    const lines = await readFile(path, "utf8");
    const report = await page.evaluate(
      async ({ name, lines }) => {
        const module = await import("./evidence_conformance.js");
        await module.default();
        return module.checkVectors("conformance", name, lines);
      },
      { name: basename(path), lines },
    );
    const reported = report.split("\n");
    const counts = reported.pop().match(/^(\d+) passed, (\d+) failed$/);
    reported.forEach((line) => console.log(line));
    passed += Number(counts[1]);
    failed += Number(counts[2]);
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 ? 0 : 1;
} finally {
  await browser.close();
}
