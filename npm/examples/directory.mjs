// A store in a directory: what a tool answered is there after a restart. Run it twice.

import { openStore } from "bounded-evidence";
import { DirectoryStore } from "bounded-evidence/node";

const directory = await DirectoryStore.open(process.argv[2] ?? "evidence");
const store = await openStore({ kind: "custom", store: directory });
const artifacts = store.artifacts("my-job");

for (const artifactId of await artifacts.list()) {
  const { byteCount } = await artifacts.describe(artifactId);
  console.log("from an earlier run:", artifactId, byteCount, "bytes");
}
const { artifactId } = await artifacts.put(`${new Date().toISOString()}\n${"a line of a log\n".repeat(10_000)}`);
console.log("stored:", artifactId);

await directory.close();
