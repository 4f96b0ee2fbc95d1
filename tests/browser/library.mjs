// Serves the built npm package of evidence-wasm to a browser, for the tests here.

import path from "node:path";

import { required } from "./chromium.mjs";

const origin = "https://library.test";

/** The builds of the library: the directory and the script of each. */
const builds = {
  plain: { directory: "LIBRARY", script: "evidence_wasm.js" },
  processes: { directory: "LIBRARY_WITH_PROCESSES", script: "evidence_wasm_processes.js" },
};

/** Opens a page of the library's own origin, with all that this build exports as `window.library`. */
export async function openLibrary(context, build = "plain") {
  const { directory, script } = builds[build];
  // A second page of a context finds the route there already, and a second route changes nothing.
  await context.route(`${origin}/**`, (route) => {
    const { pathname } = new URL(route.request().url());
    return pathname === "/"
      ? route.fulfill({ contentType: "text/html", body: "<!doctype html><title>library</title>" })
      : route.fulfill({ path: path.join(required(directory), pathname) });
  });
  const page = await context.newPage();
  await page.goto(origin);
  await page.evaluate(async (script) => {
    window.library = await import(`/${script}`);
    await window.library.default();
    // Random digits: nothing that a disk or a database could make small.
    window.hexadecimal = (byteCount) => {
      const digits = new TextEncoder().encode("0123456789abcdef");
      const bytes = new Uint8Array(byteCount);
      for (let start = 0; start < byteCount; start += 65_536) {
        crypto.getRandomValues(bytes.subarray(start, start + 65_536));
      }
      return new TextDecoder().decode(bytes.map((byte) => digits[byte & 15]));
    };
    // A store of the host, as the library's types ask for it.
    window.mapStore = () => {
      const values = new Map();
      const same = (one, other) =>
        one === other || (one && other && one.length === other.length && one.every((byte, index) => byte === other[index]));
      return {
        get: async (keys) => keys.map((key) => values.get(key)),
        list: async (prefix) => [...values.keys()].filter((key) => key.startsWith(prefix)),
        commit: async (batch) => {
          if (batch.expect.some(([key, value]) => !same(values.get(key), value))) {
            throw Object.assign(new Error("the values are others"), { code: "conflict" });
          }
          for (const key of batch.delete) values.delete(key);
          for (const [key, value] of batch.put) values.set(key, value);
        },
      };
    };
    // What a test compares: errors by their code, not by their text.
    window.settled = (promise) =>
      promise.then(
        (value) => ({ value }),
        (error) => ({ code: error.code, isEvidenceError: error instanceof window.library.EvidenceError }),
      );
  }, script);
  return page;
}

/** Lets the library's origin store only so many bytes; undefined ends it. */
export async function limitQuota(page, quotaSize) {
  const session = await page.context().newCDPSession(page);
  await session.send("Storage.overrideQuotaForOrigin", { origin, quotaSize });
}
