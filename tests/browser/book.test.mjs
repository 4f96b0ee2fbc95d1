// The book: every link in it leads somewhere, and what it shows of JavaScript and HTML works.

import assert from "node:assert/strict";
import { readFile, readdir, stat } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";

import { launch, pageUrl, required } from "./chromium.mjs";

const bookUrl = new URL("docs/", pageUrl).href;
const dist = () => required("DIST");
const sources = new URL("../../docs/src/", import.meta.url);

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

/** All files below a directory with this ending, as paths relative to it. */
async function files(directory, ending) {
  const names = await readdir(directory, { recursive: true });
  return names.filter((name) => name.endsWith(ending)).sort();
}

/** The fenced blocks of a language in the book's sources. */
async function examples(language) {
  const found = [];
  for (const name of await files(sources, ".md")) {
    const text = await readFile(new URL(name, sources), "utf8");
    for (const [, code] of text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, "gms"))) {
      found.push({ name, code });
    }
  }
  return found;
}

test("every link in the book leads somewhere", async () => {
  const pages = (await files(path.join(dist(), "docs"), ".html")).filter((name) => !name.startsWith("api/"));
  assert.ok(pages.length > 12, `the book has ${pages.length} pages`);
  const tab = await browser.newPage();
  await tab.goto(bookUrl);
  const read = (url) =>
    tab.evaluate(async (url) => {
      const text = await (await fetch(url)).text();
      const page = new DOMParser().parseFromString(text, "text/html");
      const base = page.createElement("base");
      base.href = url;
      page.head.prepend(base);
      return {
        links: [...page.querySelectorAll("[href], [src]")].filter((element) => element !== base).map((element) => element.href ?? element.src),
        ids: [...page.querySelectorAll("[id], a[name]")].map((element) => element.id || element.name),
      };
    }, url);
  const known = new Map();
  const idsOf = async (url) => {
    if (!known.has(url)) {
      known.set(url, (await read(url)).ids);
    }
    return known.get(url);
  };
  const dead = [];
  let count = 0;
  for (const name of pages) {
    const url = new URL(name, bookUrl).href;
    for (const link of new Set((await read(url)).links)) {
      count += 1;
      const target = new URL(link);
      if (target.protocol === "data:") {
        continue;
      }
      const { hash } = target;
      target.hash = "";
      target.search = "";
      if (!target.href.startsWith(pageUrl)) {
        dead.push(`${name}: ${link} is outside of the page`);
        continue;
      }
      const place = path.join(dist(), decodeURIComponent(target.href.slice(pageUrl.length)));
      const found = await stat(place).catch(() => undefined);
      const file = found?.isDirectory() ? await stat(path.join(place, "index.html")).catch(() => undefined) : found;
      if (!file?.isFile()) {
        dead.push(`${name}: ${link} is not there`);
      } else if (hash && !(await idsOf(target.href)).includes(decodeURIComponent(hash.slice(1)))) {
        dead.push(`${name}: ${link} has no such place`);
      }
    }
  }
  assert.deepEqual(dead, []);
  assert.ok(count > 300, `only ${count} links were found`);
  await tab.close();
});

test("every JavaScript example in the book runs", async () => {
  const found = await examples("js");
  assert.ok(found.length >= 5, `only ${found.length} examples were found`);
  const origin = "https://package.test";
  const context = await browser.newContext();
  // Without a bundler the package is found by its names in an import map.
  const imports = { "bounded-evidence": "/dist/index.js", "bounded-evidence/processes": "/dist/processes.js" };
  const map = `<script type="importmap">${JSON.stringify({ imports })}</script>`;
  await context.route(`${origin}/**`, (route) => {
    const { pathname } = new URL(route.request().url());
    return pathname === "/"
      ? route.fulfill({ contentType: "text/html", body: `<!doctype html><title>package</title>${map}` })
      : route.fulfill({ path: path.join(required("PACKAGE"), pathname) });
  });
  const page = await context.newPage();
  await page.goto(origin);
  for (const { name, code } of found) {
    const problem = await page.evaluate(async (code) => {
      let failed;
      console.assert = (holds) => {
        if (!holds) {
          failed ??= "an assertion of it does not hold";
        }
      };
      try {
        await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
      } catch (error) {
        failed = String(error);
      }
      return failed;
    }, code);
    assert.equal(problem, undefined, `${name}:\n${code}`);
  }
  await context.close();
});

test("every HTML example in the book shows a playground, on a page of another origin", async () => {
  const found = await examples("html");
  assert.ok(found.length >= 2, `only ${found.length} examples were found`);
  for (const { name, code } of found) {
    const context = await browser.newContext();
    const script = code.includes("<script") ? "" : `<script src="${pageUrl}bounded-evidence-playground.js"></script>`;
    const body = script + code.replaceAll("https://example.org/bounded-evidence/", pageUrl);
    const page = await context.newPage();
    // The same machine by another name is another site. It has to be a real one: browsers let no page of
    // the internet ask this machine for something.
    const url = new URL("docs/comparison.html", pageUrl);
    url.hostname = "localhost";
    await page.goto(url.href);
    await page.setContent(`<!doctype html><title>documentation</title>${body}`);
    const frame = page.locator("bounded-evidence-playground iframe").contentFrame();
    await frame.locator("button.primary").click();
    assert.match(await frame.locator(".outcome").innerText(), /final answer/, name);
    // This browser gives a frame of another site no database, and the page does without.
    const [notice, ...more] = await frame.locator(".notice").allInnerTexts();
    assert.match(notice, /kept in memory/, name);
    assert.deepEqual(more, [], name);
    await context.close();
  }
});
