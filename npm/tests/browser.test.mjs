// The package in Chromium: bundled by Vite, served by Vite while one develops, and without a bundler.

import assert from "node:assert/strict";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";
import { build, createServer, preview } from "vite";

const root = fileURLToPath(new URL("../examples/browser/", import.meta.url));
const installed = fileURLToPath(new URL("../node_modules/bounded-evidence/", import.meta.url));

let browser;
let outDir;
before(async () => {
  outDir = await mkdtemp(path.join(tmpdir(), "bounded-evidence-"));
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-quic"] });
});
after(async () => {
  await browser?.close();
  await rm(outDir, { recursive: true });
});

/** Opens an address in a profile of its own; what the page and its worker show. */
async function shown(url) {
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    const errors = [];
    page.on("pageerror", (error) => errors.push(error));
    await page.goto(url);
    await page.waitForFunction(() => document.querySelector("#worker").textContent !== "", undefined, { timeout: 60_000 }).catch((error) => {
      throw new AggregateError([...errors, error], `nothing was shown: ${errors.join(", ")}`);
    });
    assert.deepEqual(errors, []);
    return [await page.textContent("#page"), await page.textContent("#worker")];
  } finally {
    await context.close();
  }
}

function check([page, worker]) {
  assert.ok(page.startsWith("Tool result externalized:\n") && page.length <= 512);
  assert.equal(JSON.parse(worker.slice(worker.indexOf("{"))).data, "error[E0282]: type annotations needed");
}

test("Vite bundles it for a page and a worker, over the browser's database", async () => {
  await build({ root, logLevel: "warn", build: { outDir, emptyOutDir: true } });
  const assets = await readdir(path.join(outDir, "assets"));
  assert.equal(assets.filter((name) => name.endsWith(".wasm")).length, 1);
  const scripts = await Promise.all(
    assets.filter((name) => name.endsWith(".js")).map((name) => readFile(path.join(outDir, "assets", name), "utf8")),
  );
  // Nothing of Node or of the middlewares comes along.
  assert.ok(scripts.every((script) => !/node:|modelcontextprotocol|akh_read_tool_output/.test(script)));
  const server = await preview({ root, logLevel: "warn", build: { outDir }, preview: { port: 0, host: "127.0.0.1" } });
  try {
    check(await shown(server.resolvedUrls.local[0]));
  } finally {
    await server.close();
  }
});

test("Vite's development server serves it", async () => {
  const cacheDir = path.join(outDir, "cache");
  const server = await createServer({ root, logLevel: "warn", cacheDir, server: { port: 0, host: "127.0.0.1" } });
  try {
    await server.listen();
    check(await shown(server.resolvedUrls.local[0]));
  } finally {
    await server.close();
  }
});

test("without a bundler it is served as it is", async () => {
  const types = { ".js": "text/javascript", ".html": "text/html", ".wasm": "application/wasm" };
  // Without a bundler nothing knows the package's name: an import map would, but not for workers.
  const server = createHttpServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    const isPackage = pathname.startsWith("/package/");
    const file = isPackage ? path.join(installed, pathname.slice("/package/".length)) : path.join(root, pathname === "/" ? "index.html" : pathname);
    const content = await readFile(file).catch(() => undefined);
    response.statusCode = content ? 200 : 404;
    response.setHeader("content-type", types[path.extname(file)] ?? "text/plain");
    if (isPackage || !content) return response.end(content);
    const text = content.toString().replace('"bounded-evidence"', '"/package/dist/index.js"');
    response.end(text);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    check(await shown(`http://127.0.0.1:${server.address().port}/`));
  } finally {
    server.closeAllConnections();
    server.close();
  }
});
