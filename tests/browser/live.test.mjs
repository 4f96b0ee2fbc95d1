// The live run from end to end: a checkpoint is chosen on the page, a model in the page's worker drives the
// loop, and everything that can go wrong with it is said in a sentence.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, truncate, cp } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { Host } from "../model/server.mjs";
import { launch } from "../model/worker.mjs";
import { required } from "./chromium.mjs";

/** A random model of one layer: what it says is nonsense, and held to actions all the same. */
const CHAT = "qwen3-chat";
const ADDRESS = `checkpoints/${CHAT}/`;

let browser, host, context, page, directory;

before(async () => {
  browser = await launch();
  directory = await mkdtemp(path.join(tmpdir(), "evidence-live-"));
});
after(async () => {
  await browser?.close();
  if (directory) {
    await rm(directory, { recursive: true });
  }
});
beforeEach(async () => {
  host = await Host.start({ page: true });
  context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  page = await open(context);
});
afterEach(async () => {
  await context.close();
  await host.stop();
});

async function open(context) {
  const tab = await context.newPage();
  tab.setDefaultTimeout(30_000);
  await tab.goto(host.url);
  await tab.locator("#files-label + ul li").first().waitFor();
  return tab;
}

const button = (name, tab = page) => tab.getByRole("button", { name, exact: true });
const state = (tab = page) => tab.locator(".model-state");

async function goLive(tab = page) {
  await tab.getByRole("radio", { name: "A model, live" }).check();
  await tab.locator("#adapter", { hasText: "WebGPU" }).waitFor();
}

async function choose(place, value, tab = page) {
  await tab.locator("#place").selectOption(place);
  await tab.locator(place === "hub" ? "#repository" : "#model-address").fill(value);
}

async function load(tab = page) {
  await button("Load the model", tab).or(button("Load again", tab)).click();
}

async function ready(tab = page) {
  await state(tab).getByText("is ready on").waitFor();
}

/** Loads, and expects a sentence of refusal. */
async function refused(place, value, sentence) {
  await choose(place, value);
  await load();
  await state().locator(".problem", { hasText: sentence }).waitFor();
}

/** A task and limits with which a model that says nothing of sense comes to an end. */
async function limitSteps(steps, tab = page) {
  await tab.locator("#task").fill("Read the log.");
  await tab.getByLabel("max_steps").fill(String(steps));
}

/** A model that says nothing of sense says it up to the last token that it may: hundreds of them. */
async function outcome(tab = page) {
  await tab.locator(".outcome").waitFor({ timeout: 180_000 });
  return tab.locator(".outcome > p").first().innerText();
}

/** What the timeline says of each step, but for how long it took. */
function timeline(tab = page) {
  return tab.locator(".timeline .step").evaluateAll((steps) =>
    steps.map((step) => ({
      title: step.querySelector(".step-title").textContent,
      badge: step.querySelector(".badge").textContent,
      texts: [...step.querySelectorAll("pre")].map((text) => text.textContent),
    })),
  );
}

const asked = (part) => host.requests.filter((request) => request.includes(part));

test("nothing of a model is fetched before somebody wants to run one", async () => {
  await page.evaluate(() => navigator.serviceWorker.ready);
  assert.deepEqual([...asked("model-worker"), ...asked("models/")].filter((name) => !name.endsWith("index.json")), []);
  await goLive();
  assert.equal(asked("evidence_model_worker_bg.wasm").length, 1);
  assert.equal(asked("checkpoints/").length, 0);
  assert.match(await page.locator("#adapter").innerText(), /^WebGPU: .*computes on the CPU/);
  // No model lies beside this page, so that none is offered.
  assert.equal(await page.locator("#place option[value=bundled]").count(), 0);
  assert.match(await page.locator("#hub-hosts").innerText(), /connects your browser to huggingface\.co/);
});

test("a model drives the loop to its end, and its replies are a script that does the same", async () => {
  await goLive();
  await choose("address", ADDRESS);
  await load();
  await ready();
  assert.match(await state().innerText(), /qwen3-chat is ready on WebGPU.*1 layer, width 32/s);
  await limitSteps(1);
  await button("Run").click();
  await page.locator(".live-reply pre", { hasText: /./ }).waitFor();
  assert.match(await page.locator(".live-reply .figure").innerText(), /tokens of prompt, \d+ of reply/);
  const end = await outcome();
  assert.match(end, /final answer|all its steps|were no action|did not reply/);
  const live = await timeline();
  assert.ok(live.length > 0);
  for (const { texts } of live) {
    assert.match(texts[0], /^\{ ?"/);
  }
  const figures = await page.locator(".timeline .step").first().locator(".figures").last().innerText();
  assert.match(figures, /newly read\s*[\d,]+ of [\d,]+ tokens at [\d.]+ tokens\/s/);
  assert.match(figures, /written\s*[\d,]+ tokens at [\d.]+ tokens\/s\s*context\s*[\d,]+ tokens/);
  assert.match(await page.locator(".model-line").innerText(), /qwen3-chat on WebGPU/);

  const [download] = await Promise.all([page.waitForEvent("download"), button("Download the script").click()]);
  const saved = await readFile(await download.path(), "utf8");
  assert.equal(saved.split("\n").length, live.length);
  await button("Keep as a script").click();
  assert.equal(await page.locator("#script").inputValue(), saved);
  await button("Run").click();
  await outcome();
  assert.deepEqual(await timeline(), live);
});

test("stop ends a reply at once, and the model can be run again", async () => {
  await goLive();
  await choose("address", ADDRESS);
  await load();
  await ready();
  await button("Run").click();
  await page.locator(".live-reply pre", { hasText: /./ }).waitFor();
  const start = performance.now();
  await button("Stop").click();
  assert.equal(await outcome(), "The run was stopped.");
  assert.ok(performance.now() - start < 3000, `${performance.now() - start} ms`);
  assert.equal(await page.locator(".live-reply").count(), 0);
  await button("Run again").click();
  await page.locator(".live-reply pre", { hasText: /./ }).waitFor();
  await button("Reset").click();
  assert.equal(await page.locator(".live-reply").count(), 0);
});

test("without the constraint the model's own words go to the loop", async () => {
  await goLive();
  await choose("address", ADDRESS);
  await page.getByLabel("Hold replies to one action").uncheck();
  await page.getByLabel("Compute on the CPU").check();
  await load();
  await ready();
  await limitSteps(1);
  await button("Run").click();
  assert.match(await outcome(), /all its steps|did not reply/);
  const [step] = await timeline();
  assert.equal(step.title, "not an action");
});

test("a folder of this machine is a checkpoint, chosen or dropped, and truncated weights are named", async () => {
  const folder = path.join(directory, CHAT);
  await cp(path.join(required("CHECKPOINTS"), CHAT), folder, { recursive: true });
  await goLive();
  await page.locator("#place").selectOption("files");
  await load();
  await state().locator(".problem", { hasText: "Choose the folder of a checkpoint" }).waitFor();
  await page.getByLabel("Checkpoint folder…").setInputFiles(folder);
  await load();
  await ready();
  assert.equal(asked("checkpoints/").length, 0);

  await truncate(path.join(folder, "model.safetensors"), 40_000);
  const zone = await page.locator(".model-files").boundingBox();
  const session = await context.newCDPSession(page);
  const data = { items: [], files: [folder], dragOperationsMask: 1 };
  for (const type of ["dragEnter", "dragOver", "drop"]) {
    await session.send("Input.dispatchDragEvent", { type, x: zone.x + 20, y: zone.y + 20, data });
  }
  await page.locator(".model-files .hint", { hasText: "model.safetensors" }).waitFor();
  await load();
  await state().locator(".problem", { hasText: /model\.safetensors/ }).waitFor();
  // It was no log.
  assert.equal(await page.locator(".file-name", { hasText: "safetensors" }).count(), 0);
});

test("what a host answers in place of a model is a sentence, and a cut download goes on", async () => {
  await goLive();
  await refused("address", "checkpoints/none/", /The checkpoint has no config\.json/);
  await refused("address", `html/${CHAT}/`, /config\.json: the server answered with a web page in place of the file/);
  await refused("address", "http://127.0.0.1:9/model/", /connects to its own host and to Hugging Face alone/);
  await refused("address", " ", /Type the address/);
  await refused("hub", "Qwen3", /A repository is named owner\/name/);
  host.headers = { etag: '"1"' };
  host.cuts.set("model.safetensors", 30_000);
  await refused("address", ADDRESS, /model\.safetensors: the download was cut after \d+ of \d+ bytes/);
  host.cuts.clear();
  await load();
  await ready();
  assert.ok(
    asked("model.safetensors").some((request) => / from [1-9]/.test(request)),
    host.requests.join("\n"),
  );
});

test("what was downloaded is listed, chosen again, and deleted", async () => {
  await goLive();
  await choose("address", ADDRESS);
  await load();
  await ready();
  const kept = page.locator("ul[aria-labelledby=cached-label] li", { hasText: ADDRESS });
  await kept.waitFor();
  assert.match(await kept.locator(".figure").innerText(), /^\d+\.\d KB$/);
  await page.locator("#place").selectOption("hub");
  await kept.getByRole("button", { name: "Choose" }).click();
  assert.equal(await page.locator("#model-address").inputValue(), `${host.url}${ADDRESS}`);
  host.requests.length = 0;
  await load();
  await ready();
  assert.deepEqual(asked("model.safetensors").filter((request) => !request.endsWith("index.json")), []);
  await kept.getByRole("button", { name: "Delete" }).click();
  await kept.waitFor({ state: "detached" });
});

test("the worker can ask no other hosts than the page may", async () => {
  const other = await Host.start();
  other.headers = { "access-control-allow-origin": "*" };
  try {
    await goLive();
    const [worker] = page.workers();
    const answer = (url) =>
      worker.evaluate(
        (url) =>
          fetch(url).then(
            (response) => response.status,
            () => "refused",
          ),
        url,
      );
    assert.equal(await answer(`${host.url}${ADDRESS}config.json`), 200);
    assert.equal(await answer(`${other.url}${ADDRESS}config.json`), "refused");
    assert.deepEqual(other.requests, []);
  } finally {
    await other.stop();
  }
});

test("without WebGPU the page says so and the CPU computes", async () => {
  const plain = await launch({ webgpu: false });
  try {
    const tab = await open(await plain.newContext());
    await goLive(tab);
    assert.match(await tab.locator("#adapter").innerText(), /^No WebGPU adapter can be used \(the browser offers none\).*The CPU computes instead, slowly/);
    assert.ok(await tab.getByLabel("Compute on the CPU").isDisabled());
    await choose("address", ADDRESS, tab);
    await load(tab);
    await ready(tab);
    assert.match(await state(tab).innerText(), /is ready on the CPU/);
    await limitSteps(1, tab);
    await button("Run", tab).click();
    assert.match(await outcome(tab), /final answer|all its steps|did not reply/);
  } finally {
    await plain.close();
  }
});
