// Tools that are plain functions: what reaches the model is bounded, and nothing is lost.

import { boundTools, openStore } from "bounded-evidence";

const store = await openStore({ kind: "memory" });
const log = `${"compiling\n".repeat(5_000)}error[E0282]: type annotations needed\n${"compiling\n".repeat(5_000)}`;

// Your tools, by the names that the model knows; read_file is added.
const tools = boundTools({ build: async () => log }, { artifacts: store.artifacts("my-job") });

const shown = await tools.build();
console.log(shown.length, "characters reach the model instead of", log.length);

// What the model reads of it names the artifact, and it asks for the bytes that it needs.
const { artifact_id } = JSON.parse(shown.slice(shown.indexOf("{")));
const answer = await tools.read_file({ path: `.tool-artifacts/${artifact_id}/bytes/50000-50037` });
console.log(JSON.parse(answer.slice(answer.indexOf("{"))).data);
