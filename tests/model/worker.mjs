// A page with the model's worker on it, for the tests here.

import { readFile } from "node:fs/promises";

import { chromium } from "playwright-core";

import { launchOptions } from "../browser/chromium.mjs";

/** WebGPU on the adapter that computes on the CPU: the only one that every machine has. */
const WEBGPU = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-unsafe-swiftshader"];

/** Starts a browser, with or without an adapter for WebGPU. */
export function launch({ webgpu = true } = {}) {
  const options = launchOptions();
  return chromium.launch({ ...options, args: webgpu ? [...options.args, ...WEBGPU] : options.args });
}

/** Opens a page of the host and starts the worker on it; `script` is what the worker runs. */
export async function openWorker(context, host, script = "/worker/worker.js") {
  const page = await context.newPage();
  await page.goto(host.url);
  await page.evaluate(async (script) => {
    const worker = new Worker(script, { type: "module" });
    const asked = new Map();
    let nextId = 1;
    /** The events that came without being asked for. */
    window.told = [];
    window.worker = worker;
    await new Promise((resolve) => {
      worker.onmessage = ({ data: { id, ...event } }) => {
        if (id === undefined) {
          window.told.push(event);
          // Whoever waits for an answer would wait for ever.
          for (const answer of event.type === "failed" ? asked.values() : []) {
            answer(event);
          }
          resolve();
          return;
        }
        asked.get(id)(event);
      };
    });
    const LAST = ["loaded", "checked", "measured", "done", "info", "cached", "unloaded", "error", "failed"];
    /** All events that answer a request; `onEvent` sees each as it comes. */
    window.ask = (request, onEvent = () => {}) =>
      new Promise((resolve) => {
        const id = nextId++;
        const events = [];
        const broken = window.told.find((event) => event.type === "failed");
        if (broken) {
          resolve([broken]);
          return;
        }
        asked.set(id, (event) => {
          events.push(event);
          onEvent(event, events);
          if (LAST.includes(event.type)) {
            asked.delete(id);
            resolve(events);
          }
        });
        worker.postMessage({ id, ...request });
      });
  }, script);
  return page;
}

/** Asks the worker and gives its last word. */
export function ask(page, request) {
  return page.evaluate(async (request) => (await window.ask(request)).at(-1), request);
}

/** A checkpoint of the host. */
export function at(host, checkpoint, kind = "checkpoints") {
  return { kind: "url", url: `${host.url}${kind}/${checkpoint}` };
}

/** The most memory that the browser's processes of each kind have held so far, in bytes. */
export async function peakMemory(browser) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  const peak = {};
  for (const { type, id } of processInfo) {
    const status = await readFile(`/proc/${id}/status`, "utf8");
    const bytes = 1024 * Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)[1]);
    peak[type] = Math.max(peak[type] ?? 0, bytes);
  }
  return { tab: peak.renderer, device: peak.GPU };
}
