// The worker's messages: replies, what stops them, where models come from, and what goes wrong.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { required } from "../browser/chromium.mjs";
import { Host } from "./server.mjs";
import { ask, at, launch, openWorker } from "./worker.mjs";

const CHAT = "qwen3-chat";
const MESSAGES = [
  { role: "system", content: "You read logs." },
  { role: "user", content: "Read a.txt." },
];

let browser, host, context, page;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());
// A fresh profile each time: what one test stored is not there for the next.
beforeEach(async () => {
  host = await Host.start();
  context = await browser.newContext();
  page = await openWorker(context, host);
});
afterEach(async () => {
  await context.close();
  await host.stop();
});

const load = (source = at(host, CHAT), backend = "flex") => ask(page, { type: "load", source, backend });
const generate = (options, messages = MESSAGES) => ask(page, { type: "generate", messages, options });

/** Loads, and expects a refusal that says this. */
async function refused(source, sentence) {
  const answer = await load(source);
  assert.equal(answer.type, "error");
  assert.match(answer.message, sentence);
}

for (const backend of ["wgpu", "flex"]) {
  test(`tokens come one by one and make up the reply, on ${backend}`, async () => {
    const loaded = await load(undefined, backend);
    assert.equal(loaded.type, "loaded", loaded.message);
    assert.equal(loaded.model.adapter === null, backend === "flex");
    const events = await page.evaluate(
      (messages) => window.ask({ type: "generate", messages, options: { maxTokens: 12 } }),
      MESSAGES,
    );
    const done = events.at(-1);
    assert.equal(done.type, "done", done.message);
    const tokens = events.filter((event) => event.type === "token");
    assert.deepEqual(
      tokens.map((token) => token.count),
      tokens.map((_, index) => index + 1),
    );
    assert.equal(tokens.length, done.replyTokens);
    const text = tokens.map((token) => token.text).join("");
    assert.ok(done.text.startsWith(text), `${done.text} begins otherwise than ${text}`);
    const prefill = events.filter((event) => event.type === "prefill");
    assert.equal(prefill.at(-1).done, done.promptTokens);
  });

  test(`a reply ends within a token when it is cancelled, on ${backend}`, async () => {
    await load(undefined, backend);
    const { after, done } = await page.evaluate(async (messages) => {
      let seen;
      const events = await window.ask({ type: "generate", messages, options: { maxTokens: 400 } }, (event, events) => {
        if (event.type === "token" && event.count === 3) {
          window.worker.postMessage({ id: 0, type: "cancel" });
          seen = events.length;
        }
      });
      return { after: events.slice(seen).filter((event) => event.type === "token"), done: events.at(-1) };
    }, MESSAGES);
    assert.equal(done.finish, "cancelled");
    // The worker may be in the middle of one, and another may be on its way to the page.
    assert.ok(after.length <= 2, `${after.length} tokens came after it`);
    assert.equal((await generate({ maxTokens: 1 })).type, "done");
  });
}

test("both backends choose the same tokens", async () => {
  const replies = [];
  for (const backend of ["wgpu", "flex"]) {
    await load(undefined, backend);
    replies.push((await generate({ maxTokens: 24 })).text);
  }
  assert.equal(replies[0], replies[1]);
});

test("a longer conversation computes only what is new", async () => {
  await load();
  const first = await generate({ maxTokens: 4 });
  assert.equal(first.computedTokens, first.promptTokens);
  const longer = [...MESSAGES, { role: "assistant", content: "x" }, { role: "user", content: "Go on." }];
  const second = await generate({ maxTokens: 4 }, longer);
  assert.ok(second.computedTokens < second.promptTokens - first.promptTokens / 2, JSON.stringify(second));
});

test("a constrained reply is an action, whatever the model", async () => {
  await load();
  const sampling = { temperature: 1, seed: 5 };
  const done = await generate({ maxTokens: 300, sampling, constrainTo: ["read_file"] });
  assert.match(done.text, /^\{ ?"(tool|path|final)"/);
  if (done.finish === "stop") {
    const action = JSON.parse(done.text);
    assert.ok(action.final !== undefined || action.tool === "read_file", done.text);
  }
  const unknown = await generate({ constrainTo: ["fly"] });
  assert.match(unknown.message, /there is no tool "fly"/);
});

test("one thing at a time, and none without a model", async () => {
  assert.match((await generate({})).message, /no model is loaded/);
  await load();
  const busy = await page.evaluate(async (messages) => {
    const first = window.ask({ type: "generate", messages, options: { maxTokens: 50 } });
    const second = await window.ask({ type: "unload" });
    window.worker.postMessage({ id: 0, type: "cancel" });
    await first;
    return second.at(-1);
  }, MESSAGES);
  assert.match(busy.message, /the model is at work/);
  assert.equal((await ask(page, { type: "unload" })).type, "unloaded");
  assert.match((await generate({})).message, /no model is loaded/);
  assert.match((await ask(page, { type: "dance" })).message, /the message is not understood/);
});

test("info describes adapter, model and memory", async () => {
  const before = await ask(page, { type: "info" });
  assert.equal(before.adapter.isSoftware, true);
  assert.ok(before.adapter.maxBufferBytes >= 128 << 20);
  assert.equal(before.model, null);
  await load(undefined, "wgpu");
  const { model, workerBytes } = await ask(page, { type: "info" });
  assert.ok(workerBytes > 1 << 20);
  assert.ok(model.deviceBytes > 0);
  assert.ok(model.maxContext > 0);
});

test("which kernels are the fastest is remembered", async () => {
  /** Reads or replaces what is kept beside the checkpoints. */
  const notes = (replacement) =>
    page.evaluate(async (replacement) => {
      const root = await navigator.storage.getDirectory();
      const folder = await root.getDirectoryHandle("evidence-models");
      const texts = [];
      for await (const [name, entry] of folder.entries()) {
        if (entry.kind === "file") {
          texts.push(await (await entry.getFile()).text());
          if (replacement !== undefined) {
            const writable = await entry.createWritable();
            await writable.write(replacement);
            await writable.close();
          }
        }
      }
      return texts;
    }, replacement);
  await load(undefined, "wgpu");
  const [plan, ...others] = await notes();
  assert.ok(JSON.parse(plan).matvec, plan);
  assert.deepEqual(others, []);
  await load(undefined, "wgpu");
  assert.deepEqual(await notes("damaged"), [plan]);
  assert.equal((await load(undefined, "wgpu")).type, "loaded");
  assert.ok(JSON.parse((await notes())[0]).matvec);
});

test("a measurement has rates", async () => {
  await load();
  const measured = await ask(page, { type: "measure", promptTokens: 20, decodeTokens: 5 });
  assert.equal(measured.type, "measured", measured.message);
  assert.ok(measured.prefillRate > 0 && measured.decodeRate > 0 && measured.weightBandwidth > 0);
  // Four kinds of each layer for one token and for a block, and the head.
  assert.equal(measured.products.length, 9);
  assert.ok(measured.products.every((product) => product.ms > 0 && product.weightBytes > 0));
  assert.ok(measured.productShare > 0);
});

test("what was downloaded stays until it is deleted, and needs no network", async () => {
  assert.equal((await load()).type, "loaded");
  const [kept] = (await ask(page, { type: "cached" })).checkpoints;
  assert.equal(kept.url, `${host.url}checkpoints/${CHAT}/`);
  assert.ok(kept.byteCount > 80_000, `${kept.byteCount} bytes`);
  host.requests.length = 0;
  assert.equal((await load()).type, "loaded");
  // Only what was not there is asked for again.
  assert.deepEqual(
    host.requests.filter((request) => !request.endsWith(".jinja") && !request.endsWith("index.json")),
    [],
  );
  await context.setOffline(true);
  assert.equal((await load()).type, "loaded");
  await context.setOffline(false);
  assert.deepEqual((await ask(page, { type: "delete", key: kept.key })).checkpoints, []);
  // Where there is nothing, nothing is kept.
  await refused(at(host, "no-such-checkpoint"), /no config\.json/);
  assert.deepEqual((await ask(page, { type: "cached" })).checkpoints, []);
  await load();
  assert.ok(host.requests.some((request) => request.endsWith("model.safetensors")));
});

test("a download that was cut goes on where it was cut", async () => {
  host.headers = { etag: '"1"' };
  host.cuts.set("model.safetensors", 30_000);
  await refused(at(host, CHAT), /model\.safetensors: the download was cut after \d+ of \d+ bytes.*load again to go on/);
  host.cuts.clear();
  assert.equal((await load()).type, "loaded");
  assert.ok(
    host.requests.some((request) => /model\.safetensors from [1-9]/.test(request)),
    host.requests.join("\n"),
  );
});

test("a file that is another by now is downloaded anew", async () => {
  host.headers = { etag: '"1"' };
  host.cuts.set("model.safetensors", 30_000);
  await refused(at(host, CHAT), /cut/);
  host.cuts.clear();
  host.headers = { etag: '"2"' };
  assert.equal((await load()).type, "loaded");
  const whole = host.requests.filter((request) => request.endsWith("model.safetensors"));
  assert.equal(whole.length, 2, host.requests.join("\n"));
});

test("what a host answers in place of a file is told apart", async () => {
  await refused(at(host, "no-such-checkpoint"), /the checkpoint has no config\.json/);
  await refused(at(host, CHAT, "html"), /config\.json: the server answered with a web page in place of the file/);
  await refused(at(host, CHAT, "forbidden"), /config\.json: the server refuses \(403\)/);
  await refused(at(host, CHAT, "busy"), /config\.json: the server cannot answer now \(503\)/);
  await refused({ kind: "url", url: "http://127.0.0.1:9/" }, /the server cannot be reached/);
  await refused({ kind: "url", url: "http://[" }, /is no address/);
});

test("a host that does not let this page read is named as such", async () => {
  const other = await Host.start();
  try {
    await refused(at(other, CHAT), /does not allow other sites' pages to read from it \(CORS\)/);
    other.headers = { "access-control-allow-origin": "*" };
    assert.equal((await load(at(other, CHAT))).type, "loaded");
  } finally {
    await other.stop();
  }
});

test("a folder of chosen files is a checkpoint", async () => {
  const folder = path.join(required("CHECKPOINTS"), CHAT);
  const names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];
  const contents = await Promise.all(names.map(async (name) => [name, [...(await readFile(path.join(folder, name)))]]));
  const answer = await page.evaluate(async (contents) => {
    const files = contents.map(([name, bytes]) => new File([new Uint8Array(bytes)], name));
    const load = (files) => window.ask({ type: "load", source: { kind: "files" }, backend: "flex", files });
    return { whole: (await load(files)).at(-1), part: (await load(files.slice(2))).at(-1), none: (await load()).at(-1) };
  }, contents);
  assert.equal(answer.whole.type, "loaded", answer.whole.message);
  assert.match(answer.part.message, /the checkpoint has no config\.json/);
  assert.match(answer.none.message, /no files came/);
});

test("a hub's repository is checked by size and digest", async () => {
  const folder = path.join(required("CHECKPOINTS"), CHAT);
  let wrong = false;
  await context.route("https://huggingface.co/**", async (route) => {
    const { pathname } = new URL(route.request().url());
    const headers = { "access-control-allow-origin": "*" };
    const names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];
    if (pathname === "/api/models/owner/name/tree/main") {
      const list = await Promise.all(
        names.map(async (name) => {
          const bytes = await readFile(path.join(folder, name));
          const digest = Buffer.from(await crypto.subtle.digest("SHA-256", bytes)).toString("hex");
          const oid = wrong ? "0".repeat(64) : digest;
          const lfs = name.endsWith(".safetensors") ? { lfs: { oid, size: bytes.length } } : {};
          return { type: "file", path: name, size: bytes.length, ...lfs };
        }),
      );
      return route.fulfill({ headers, json: list });
    }
    const name = pathname.replace("/owner/name/resolve/main/", "");
    return names.includes(name)
      ? route.fulfill({ headers, path: path.join(folder, name) })
      : route.fulfill({ headers, status: 404 });
  });
  const hub = (repository) => ({ kind: "hub", repository });
  await refused(hub("owner/none"), /the hub has no such repository/);
  await refused(hub("../x"), /is no repository of the hub/);
  wrong = true;
  await refused(hub("owner/name"), /model\.safetensors: the downloaded bytes do not have the digest/);
  wrong = false;
  assert.equal((await load(hub("owner/name"))).type, "loaded");
});

test("without an adapter the CPU computes, and says so", async () => {
  const plain = await launch({ webgpu: false });
  try {
    const page = await openWorker(await plain.newContext(), host);
    const loaded = await ask(page, { type: "load", source: at(host, CHAT) });
    assert.equal(loaded.type, "loaded", loaded.message);
    assert.equal(loaded.model.adapter, null);
    assert.match(loaded.fallback, /WebGPU/);
    const info = await ask(page, { type: "info" });
    assert.match(info.noAdapter, /WebGPU/);
    const refused = await ask(page, { type: "load", source: at(host, CHAT), backend: "wgpu" });
    assert.match(refused.message, /WebGPU/);
  } finally {
    await plain.close();
  }
});

/** A worker whose device can be made to fail by a word. */
const BREAKABLE = `
  const request = GPUAdapter.prototype.requestDevice;
  let device;
  GPUAdapter.prototype.requestDevice = async function (...parameters) {
    device = await request.apply(this, parameters);
    return device;
  };
  const words = {
    lose: () => device.destroy(),
    fill: () => device.dispatchEvent(new GPUUncapturedErrorEvent("uncapturederror", { error: new GPUOutOfMemoryError("full") })),
    panic: () => { throw new Error("as a panic does"); },
  };
  self.addEventListener("message", (event) => {
    if (event.data in words) {
      event.stopImmediatePropagation();
      words[event.data]();
    }
  });
  await import("/worker/worker.js");
`;

/** Opens a page with that worker. */
async function openBreakable() {
  await context.route(`${host.url}breakable.js`, (route) =>
    route.fulfill({ contentType: "text/javascript", body: BREAKABLE }),
  );
  const page = await openWorker(context, host, "/breakable.js");
  assert.equal((await ask(page, { type: "load", source: at(host, CHAT), backend: "wgpu" })).type, "loaded");
  return page;
}

for (const [word, sentence] of [
  ["lose", /^the device was lost; load the model again/],
  ["fill", /the adapter has not enough memory for this model; choose a smaller one/],
]) {
  test(`a device that fails (${word}) is told, and the next load asks for another`, async () => {
    const page = await openBreakable();
    await page.evaluate((word) => window.worker.postMessage(word), word);
    const request = { type: "generate", messages: MESSAGES, options: { maxTokens: 4 } };
    assert.match((await ask(page, request)).message, sentence);
    assert.equal((await ask(page, { type: "load", source: at(host, CHAT), backend: "wgpu" })).type, "loaded");
    assert.equal((await ask(page, request)).type, "done");
  });
}

test("a worker that breaks says so once", async () => {
  const page = await openBreakable();
  await page.evaluate(() => {
    window.worker.postMessage("panic");
    window.worker.postMessage("panic");
  });
  await page.waitForFunction(() => window.told.length > 1);
  const told = await page.evaluate(() => window.told);
  assert.deepEqual(
    told.map((event) => event.type),
    ["ready", "failed"],
  );
  assert.match(told[1].message, /the model worker broke .*as a panic does.*load the model again/);
});
