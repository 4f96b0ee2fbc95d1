// The component, transpiled by jco into a directory that goes with the test's process.

import { mkdtempSync, rmSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { transpile } from "@bytecodealliance/jco-transpile";

const built = fileURLToPath(new URL("../../target/component/", import.meta.url));
const outDir = `${mkdtempSync(`${built}jco-`)}/`;
process.on("exit", () => rmSync(outDir, { recursive: true }));

const { files, imports } = await transpile(`${built}bounded_evidence.wasm`, {
  name: "evidence",
  instantiation: "sync",
  outDir,
});
await writeFile(`${outDir}package.json`, '{"type": "module"}');
for (const [file, bytes] of Object.entries(files)) {
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, bytes);
}

/** The directory of what jco made. */
export const directory = pathToFileURL(outDir);

/** The interfaces that the component asks its host for. */
export const imported = imports;
