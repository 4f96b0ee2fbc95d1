// A process that goes on while the model follows it: every byte that it writes is kept.
//
// Who calls is a script here; in an agent it is the model, with these tools under the same names.

import { spawn } from "node:child_process";

import { openStore } from "bounded-evidence/processes";

const store = await openStore({ kind: "memory" });
const output = store.toolOutput("my-session");
await output.createJob("my-job");

/** Starts what the model asks for. Say here what it may ask for: nothing else is between it and your machine. */
async function* start({ argv: [program, ...more], signal }) {
  if (program !== "build") throw new Error("only `build` may be started");
  const script = `for (let i = 1; i <= 3000; i++) console.log("compiled", i, "of 3000"); console.error("1 warning"); process.exitCode = 2`;
  const child = spawn(process.execPath, ["--eval", script, ...more], { signal, stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise((resolve, reject) => child.on("close", resolve).on("error", reject));
  const stderr = child.stderr.toArray();
  for await (const bytes of child.stdout) yield { stdout: bytes };
  for (const bytes of await stderr) yield { stderr: bytes };
  yield { exitCode: await ended };
}

await output.openProcesses(start);
const call = async (tool, input) => JSON.parse((await output.callProcessTool("my-job", tool, JSON.stringify(input))).result);

const { data } = await call("exec_start", { argv: ["build"] });
const process_id = data.process_id;
// Exact bytes of its standard output, from where the last poll has ended.
let offset = 0;
let poll;
do {
  poll = await call("exec_poll", { process_id, stdout_offset: offset, max_output_bytes: 8192 });
  offset = poll.stdout.next_offset;
} while (poll.status === "running" || !poll.stdout.done);
console.log(poll.status, "after", offset, "bytes");

// And from anywhere, also after it has ended.
const { stdout } = await call("exec_poll", { process_id, stdout_offset: 30_000, max_output_bytes: 200 });
console.log(stdout.text.split("\n")[1]);

await output.closeProcesses();
await output.setStatus("my-job", "completed");
