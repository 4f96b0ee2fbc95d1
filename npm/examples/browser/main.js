// A page: the browser's own database keeps what a tool answered, and a worker reads it too.

import { boundTools, openStore } from "bounded-evidence";

const store = await openStore({ kind: "indexeddb" });
const log = `${"compiling\n".repeat(5_000)}error[E0282]: type annotations needed\n${"compiling\n".repeat(5_000)}`;
const tools = boundTools({ build: async () => log }, { artifacts: store.artifacts("my-job") });

const shown = await tools.build();
document.querySelector("#page").textContent = shown;

const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
worker.onmessage = ({ data }) => {
  document.querySelector("#worker").textContent = data;
};
worker.postMessage(JSON.parse(shown.slice(shown.indexOf("{"))).artifact_id);
