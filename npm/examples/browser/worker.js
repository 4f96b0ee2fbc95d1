// A worker: the same package, and the same database.

import { boundTools, openStore } from "bounded-evidence";

self.onmessage = async ({ data: artifactId }) => {
  const store = await openStore({ kind: "indexeddb" });
  const { read_file } = boundTools({}, { artifacts: store.artifacts("my-job") });
  self.postMessage(await read_file({ path: `.tool-artifacts/${artifactId}/bytes/50000-50037` }));
};
