// Minifies scripts in place: `node minify.mjs FILE…`.

import { readFile, writeFile } from "node:fs/promises";

import { minify } from "vite";

for (const file of process.argv.slice(2)) {
  const { code, errors } = await minify(file, await readFile(file, "utf8"), { module: true });
  if (errors.length > 0) throw new AggregateError(errors, `cannot minify ${file}`);
  await writeFile(file, code);
}
