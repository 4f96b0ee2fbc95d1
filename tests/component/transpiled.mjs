// The component, transpiled by jco into target/component/jco/ once for each test process.

import { mkdir, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { transpile } from "@bytecodealliance/jco-transpile";

const component = fileURLToPath(new URL("../../target/component/bounded_evidence.wasm", import.meta.url));

/** The directory of what jco made. */
export const directory = new URL("../../target/component/jco/", import.meta.url);

const { files, imports } = await transpile(component, {
  name: "evidence",
  instantiation: "sync",
  outDir: fileURLToPath(directory),
});
await mkdir(directory, { recursive: true });
await writeFile(new URL("package.json", directory), '{"type": "module"}');
for (const [file, bytes] of Object.entries(files)) {
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, bytes);
}

/** The interfaces that the component asks its host for. */
export const imported = imports;
