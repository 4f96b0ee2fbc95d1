// The endpoint of contract B in the page's service worker, over the page's database: what
// crates/evidence-cli/tests/serve does with the server, each test named after a sentence of the
// contract. And the worker's other duty, the page without a network.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { cp, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { after, before, test } from "node:test";

import { launch, pageUrl, required } from "./chromium.mjs";

const KIB = 1024;
const MIB = 1024 * KIB;

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

/** A page of a fresh profile whose worker answers. */
async function open(t, url = pageUrl) {
  const context = await browser.newContext();
  t.after(() => context.close());
  const page = await context.newPage();
  await page.goto(url);
  await controlled(page);
  return page;
}

/** Waits until the worker has taken the page. */
const controlled = (page) => page.waitForFunction(() => navigator.serviceWorker.controller);

/** A request by the page, relative to its own path. */
async function send(page, method, target, { body, headers } = {}) {
  const response = await page.evaluate(
    async ({ method, target, body, headers }) => {
      const response = await fetch(target, { method, body, headers });
      const text = await response.text();
      return { status: response.status, headers: Object.fromEntries(response.headers), text };
    },
    { method, target, body, headers },
  );
  return {
    ...response,
    json: () => JSON.parse(response.text),
    /** The status and the stable code of a refusal. */
    refusal: () => {
      const type = response.headers["content-type"];
      assert.equal(type, "application/problem+json", response.text.slice(0, 500));
      const problem = JSON.parse(response.text);
      assert.equal(problem.status, response.status);
      return [response.status, problem.code];
    },
  };
}

async function createJob(page, job = "j") {
  const { status, text } = await send(page, "PUT", `v1/jobs/${job}`);
  assert.ok(status === 201 || status === 200, text);
}

/** The exact serialization of a result, as the contract has it. */
const serialized = (text, { success = true, data = "null", receipt = "null" } = {}) =>
  `{"success":${success},"text":${JSON.stringify(text)},"data":${data},"receipt":${receipt}}`;

const bytesOf = (text) => Buffer.byteLength(text);
const sha256Of = (text) => createHash("sha256").update(text).digest("hex");

/** A serialized result of exactly so many bytes. */
const resultOf = (byteCount, letter = "x") =>
  serialized(letter.repeat(byteCount - bytesOf(serialized(""))));

const record = (page, body, { job = "j", id } = {}) =>
  send(page, "POST", `v1/jobs/${job}/tool-results`, {
    body,
    headers: id ? { "tool-call-id": id } : {},
  });

/** Records `resultOf(byteCount, letter)`, which is made in the page: it is too large to be sent there. */
async function recordLarge(page, byteCount, { letter = "x", job = "j" } = {}) {
  const count = byteCount - bytesOf(serialized(""));
  const head = serialized("").split('""')[0];
  const tail = serialized("").slice(head.length + 2);
  const body = await page.evaluateHandle(
    ([head, letter, count, tail]) => `${head}"${letter.repeat(count)}"${tail}`,
    [head, letter, count, tail],
  );
  return send(page, "POST", `v1/jobs/${job}/tool-results`, { body });
}

/** Stores a result and gives the address of its bytes, relative to the page. */
async function store(page, body, options) {
  const response = await record(page, body, options);
  assert.equal(response.status, 200, response.text);
  const { data } = response.json();
  assert.equal(data.kind, "tool_output_ref");
  return data.path.slice(1);
}

/** Reads an artifact to its end. */
async function readAll(page, path, limit = 8192) {
  let text = "";
  for (let offset = 0; ; ) {
    const answer = (await send(page, "GET", `${path}?offset=${offset}&limit=${limit}`)).json();
    assert.equal(answer.offset, offset);
    text += answer.text;
    offset = answer.next_offset;
    if (answer.done) {
      assert.equal(offset, answer.bytes);
      return text;
    }
  }
}

/** Changes values of the page's database whose keys match; how many there were. */
function tamper(page, pattern, change) {
  return page.evaluate(
    async ([pattern, change]) => {
      const settled = (request) =>
        new Promise((resolve, reject) => {
          request.onsuccess = () => resolve(request.result);
          request.onerror = () => reject(request.error);
        });
      const database = await settled(indexedDB.open("bounded-evidence"));
      const values = database.transaction("values", "readwrite").objectStore("values");
      const keys = (await settled(values.getAllKeys())).filter((key) =>
        new RegExp(pattern).test(key),
      );
      for (const key of keys) {
        const value = await settled(values.get(key));
        if (change === "delete") {
          await settled(values.delete(key));
        } else {
          value[value.length >> 1] ^= 1;
          await settled(values.put(value, key));
        }
      }
      database.close();
      return keys.length;
    },
    [pattern, change],
  );
}

test("a result of 16,384 bytes passes unchanged and one of 16,385 is stored", async (t) => {
  const page = await open(t);
  await createJob(page);
  const small = resultOf(16 * KIB);
  assert.equal((await record(page, small)).text, small);
  const large = resultOf(16 * KIB + 1);
  const bounded = await record(page, large);
  assert.ok(bytesOf(bounded.text) <= 16 * KIB);
  const { data, success } = bounded.json();
  assert.equal(success, true);
  assert.deepEqual(data, {
    kind: "tool_output_ref",
    schema_version: 1,
    job_id: "j",
    sha256: sha256Of(large),
    bytes: bytesOf(large),
    path: `/v1/jobs/j/tool-output/${sha256Of(large)}`,
    tool: "akh_read_tool_output",
    handles: {},
  });
  assert.equal(await readAll(page, data.path.slice(1)), large);
});

test("all bytes are committed as chunks, each under its own hash, before the excerpt is returned", async (t) => {
  const page = await open(t);
  await createJob(page);
  const lines = Array.from({ length: 30_000 }, (_, n) => `line ${n}`).join("\n");
  const result = serialized(lines);
  const response = await record(page, result);
  assert.equal(response.status, 200);
  const chunks = await page.evaluate(async () => {
    const settled = (request) =>
      new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
      });
    const database = await settled(indexedDB.open("bounded-evidence"));
    const values = database.transaction("values").objectStore("values");
    const keys = (await settled(values.getAllKeys())).filter((key) => key.includes("/chunk/"));
    const found = [];
    for (const key of keys) {
      const value = await settled(values.get(key));
      found.push([key.split("/").pop(), Array.from(value)]);
    }
    database.close();
    return found;
  });
  let byteCount = 0;
  for (const [sha256, bytes] of chunks) {
    assert.equal(createHash("sha256").update(Buffer.from(bytes)).digest("hex"), sha256);
    byteCount += bytes.length;
  }
  assert.ok(chunks.length > 1);
  assert.equal(byteCount, bytesOf(result));
});

test("a larger result keeps exactly one head/tail excerpt of its text", async (t) => {
  const page = await open(t);
  await createJob(page);
  const text = Array.from({ length: 5000 }, (_, n) => `line ${n}`).join("\n");
  const result = serialized(text);
  const shown = (await record(page, result)).json();
  const parts = shown.text.split(
    /\n\[\.\.\. bytes (\d+) to (\d+) of the complete result are left out; read them with akh_read_tool_output \.\.\.\]\n/,
  );
  assert.equal(parts.length, 4, "one excerpt");
  const [head, start, end, tail] = parts;
  assert.ok(text.startsWith(head) && text.endsWith(tail));
  const path = shown.data.path.slice(1);
  const read = (await send(page, "GET", `${path}?offset=${start}&limit=9`)).json();
  assert.equal(read.text, result.slice(Number(start), Number(start) + 9));
  assert.ok(result.slice(Number(end)).startsWith(JSON.stringify(tail).slice(1, -1)));
});

test("base64 in a text result is text and is bounded", async (t) => {
  const page = await open(t);
  await createJob(page);
  const result = serialized("iVBORw0KGgoAAAANSUhEUgAA".repeat(2000));
  const shown = await record(page, result);
  assert.ok(bytesOf(shown.text) <= 16 * KIB);
  assert.equal(await readAll(page, shown.json().data.path.slice(1)), result);
});

test("an answer has the members of the contract and no other", async (t) => {
  const page = await open(t);
  await createJob(page);
  const result = resultOf(20_000);
  const path = await store(page, result);
  const answer = (await send(page, "GET", `${path}?offset=2&limit=7`)).json();
  assert.deepEqual(answer, {
    schema_version: 1,
    sha256: sha256Of(result),
    bytes: 20_000,
    offset: 2,
    next_offset: 9,
    done: false,
    text: "success",
  });
  // Without a query: from the start, as much as there may be.
  const whole = (await send(page, "GET", path)).json();
  assert.deepEqual([whole.offset, whole.next_offset], [0, 8192]);
});

test("a read fetches only the chunks it needs: damage elsewhere does not touch it", async (t) => {
  const page = await open(t);
  await createJob(page);
  const lines = Array.from({ length: 40_000 }, (_, n) => `line ${n}`).join("\n");
  const result = serialized(lines);
  const path = await store(page, result);
  // The chunk that holds the end.
  const tail = Buffer.from(result).subarray(-100).toString();
  const changed = await page.evaluate(async (tail) => {
    const settled = (request) =>
      new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
      });
    const database = await settled(indexedDB.open("bounded-evidence"));
    const values = database.transaction("values", "readwrite").objectStore("values");
    const keys = (await settled(values.getAllKeys())).filter((key) => key.includes("/chunk/"));
    let count = 0;
    for (const key of keys) {
      const value = await settled(values.get(key));
      if (new TextDecoder().decode(value).endsWith(tail)) {
        value[0] ^= 1;
        await settled(values.put(value, key));
        count += 1;
      }
    }
    database.close();
    return count;
  }, tail);
  assert.equal(changed, 1);
  const start = (await send(page, "GET", path)).json();
  assert.equal(start.text, result.slice(0, 8192));
  const end = await send(page, "GET", `${path}?offset=${bytesOf(result) - 100}`);
  assert.deepEqual(end.refusal(), [500, "integrity_failure"]);
});

test("escapes that grow sixfold are counted as they are sent", async (t) => {
  const page = await open(t);
  await createJob(page);
  const inline = serialized("\u0001".repeat(2721));
  assert.equal((await record(page, inline)).text, inline);
  const large = serialized("\u0001".repeat(3000));
  assert.equal(await readAll(page, await store(page, large)), large);
});

test("offset is a UTF-8 byte cursor; one inside a code point is refused", async (t) => {
  const page = await open(t);
  await createJob(page);
  const result = serialized("🙂".repeat(5000));
  const path = await store(page, result);
  const first = result.indexOf("🙂");
  for (const limit of [4093, 4094]) {
    assert.equal(await readAll(page, path, limit), result);
  }
  for (const inside of [1, 2, 3]) {
    const response = await send(page, "GET", `${path}?offset=${first + inside}`);
    assert.deepEqual(response.refusal(), [422, "mid_codepoint"]);
  }
  const narrow = await send(page, "GET", `${path}?offset=${first}&limit=3`);
  assert.deepEqual(narrow.refusal(), [422, "mid_codepoint"]);
  assert.equal(narrow.json().needed_limit, 4);
});

test("limit is 1 to 8192, and range ends shorten to a boundary", async (t) => {
  const page = await open(t);
  await createJob(page);
  const path = await store(page, resultOf(20_000));
  for (const query of ["limit=0", "limit=8193", "offset=-1", "offset=1.5", "offset=0&offset=0", "x=1", "offset=%zz"]) {
    const response = await send(page, "GET", `${path}?${query}`);
    assert.deepEqual(response.refusal(), [400, "invalid_request"], query);
  }
  const beyond = await send(page, "GET", `${path}?offset=20001`);
  assert.deepEqual(beyond.refusal(), [416, "out_of_range"]);
  assert.equal(beyond.json().bytes, 20_000);
  const end = (await send(page, "GET", `${path}?offset=20000`)).json();
  assert.deepEqual([end.text, end.done, end.next_offset], ["", true, 20_000]);
});

test("the original success and receipt survive; a receipt that cannot fit is elided", async (t) => {
  const page = await open(t);
  await createJob(page);
  const failed = serialized("x".repeat(20_000), { success: false, receipt: '{"exit":7}' });
  const bounded = (await record(page, failed)).json();
  assert.equal(bounded.success, false);
  assert.deepEqual(bounded.receipt, { exit: 7 });
  const receipt = JSON.stringify("r".repeat(20 * KIB));
  const elided = (await record(page, serialized("t", { receipt }))).json();
  assert.deepEqual(elided.receipt, {
    receipt_elided: true,
    sha256: sha256Of(receipt),
    bytes: bytesOf(receipt),
  });
});

test("handles carry at most 2 KiB, and what does not fit is left out", async (t) => {
  const page = await open(t);
  await createJob(page);
  const handles = Object.fromEntries(Array.from({ length: 10_000 }, (_, n) => [`key_${n}`, n]));
  const body = serialized("x".repeat(20_000)).replace(/}$/, `,"handles":${JSON.stringify(handles)}}`);
  const { data } = (await record(page, body)).json();
  assert.ok(bytesOf(JSON.stringify(data.handles)) <= 2 * KIB);
  assert.equal(data.handles_elided, true);
  assert.equal(data.handles.key_0, 0);
});

test("numbers, duplicate keys and depth are kept exactly", async (t) => {
  const page = await open(t);
  await createJob(page);
  const deep = "[".repeat(200) + "]".repeat(200);
  const data = `{"a":9007199254740993,"b":-0,"c":1e400,"a":1.10,"deep":${deep}}`;
  const small = serialized("t", { data });
  assert.equal((await record(page, small)).text, small);
  const large = serialized("x".repeat(20_000), { data });
  assert.equal(await readAll(page, await store(page, large)), large);
});

test("one serialized result is at most 16 MiB", async (t) => {
  const page = await open(t);
  await createJob(page);
  const largest = resultOf(16 * MIB);
  const path = (await recordLarge(page, 16 * MIB)).json().data.path.slice(1);
  const tail = (await send(page, "GET", `${path}?offset=${16 * MIB - 8192}`)).json();
  assert.equal(tail.text, largest.slice(-8192));
  assert.equal(tail.sha256, sha256Of(largest));
  const response = await recordLarge(page, 16 * MIB + 1);
  assert.deepEqual(response.refusal(), [413, "result_too_large"]);
});

test("a job holds at most 128 MiB, identical artifacts counted once", async (t) => {
  const page = await open(t);
  await createJob(page);
  const letters = "abcdefgh";
  for (const letter of letters) {
    assert.equal((await recordLarge(page, 16 * MIB, { letter })).status, 200);
  }
  assert.equal((await recordLarge(page, 16 * MIB, { letter: "a" })).status, 200);
  const response = await record(page, resultOf(16 * KIB + 1));
  assert.deepEqual(response.refusal(), [507, "storage_exhausted"]);
  await createJob(page, "other");
  await store(page, resultOf(16 * KIB + 1), { job: "other" });
});

test("when storage is exhausted the call is refused and nothing is half stored", async (t) => {
  const context = await browser.newContext();
  t.after(() => context.close());
  const page = await context.newPage();
  const { origin } = new URL(pageUrl);
  const devtools = await context.newCDPSession(page);
  // Chromium remembers for a while how much room it found: the limit comes before the page. It leaves
  // room for the page's own files.
  await devtools.send("Storage.overrideQuotaForOrigin", { origin, quotaSize: 4_000_000 });
  await page.goto(pageUrl);
  await controlled(page);
  await createJob(page);
  const before = await store(page, resultOf(20_000));
  // Not to be compressed away: a browser may do that.
  const hexadecimal = randomBytes(4 * MIB).toString("hex");
  const response = await record(page, serialized(hexadecimal));
  assert.deepEqual(response.refusal(), [507, "storage_exhausted"]);
  assert.equal(await readAll(page, before), resultOf(20_000));
  await devtools.send("Storage.overrideQuotaForOrigin", { origin });
  await store(page, serialized(hexadecimal));
});

test("a Tool-Call-Id makes a delivery idempotent, also for two at once", async (t) => {
  const page = await open(t);
  await createJob(page);
  const body = resultOf(20_000);
  const [one, other] = await Promise.all([
    record(page, body, { id: "call-1" }),
    record(page, body, { id: "call-1" }),
  ]);
  assert.equal(one.status, 200, one.text);
  assert.equal(one.text, other.text);
  const different = await record(page, resultOf(20_001), { id: "call-1" });
  assert.deepEqual(different.refusal(), [409, "conflict"]);
});

test("the tool may return fewer bytes to leave room for its envelope", async (t) => {
  const page = await open(t);
  await createJob(page);
  const result = serialized("\\\u0001".repeat(4000));
  const sha256 = (await store(page, result)).split("/").pop();
  let text = "";
  for (let offset = 0, done = false; !done; ) {
    const body = JSON.stringify({ sha256, offset, limit: 8192 });
    const answer = await send(page, "POST", "v1/jobs/j/tools/akh_read_tool_output", { body });
    assert.equal(answer.status, 200, answer.text);
    assert.ok(bytesOf(serialized(answer.text)) <= 16 * KIB);
    ({ next_offset: offset, done } = answer.json());
    text += answer.json().text;
  }
  assert.equal(text, result);
});

test("prior jobs need the same session exactly; another session's are denied", async (t) => {
  const page = await open(t);
  await createJob(page);
  const path = await store(page, resultOf(20_000));
  await createJob(page, "later");
  const sha256 = path.split("/").pop();
  const body = JSON.stringify({ job_id: "j", sha256, offset: 0, limit: 1 });
  const read = await send(page, "POST", "v1/jobs/later/tools/akh_read_tool_output", { body });
  assert.equal(read.json().text, "{");
  // Another profile is another session, and the database's session is the only one that is asked.
  const stranger = await open(t);
  const denied = await send(stranger, "GET", path);
  const unknown = await send(stranger, "GET", path.replace("jobs/j/", "jobs/unknown/"));
  assert.deepEqual(denied.refusal(), [404, "unavailable"]);
  assert.equal(denied.text, unknown.text);
  const headers = { authorization: "Bearer whatever", "x-session": "s" };
  assert.equal((await send(stranger, "GET", path, { headers })).status, 404);
});

test("endpoint and tool need an authenticated session: another site's form is refused", async (t) => {
  const page = await open(t);
  await createJob(page);
  const other = createServer((_, response) => {
    const action = new URL("v1/jobs/j/tool-results", pageUrl);
    response.setHeader("content-type", "text/html");
    response.end(
      `<form method="post" enctype="text/plain" action="${action}"><input name="x"></form>`,
    );
  });
  await new Promise((resolve) => other.listen(0, "127.0.0.1", resolve));
  t.after(() => other.close());
  const tab = await page.context().newPage();
  // Another host name is another site.
  await tab.goto(`http://localhost:${other.address().port}/`);
  const answered = tab.waitForResponse((response) => response.url().includes("/tool-results"));
  await tab.evaluate(() => document.forms[0].submit());
  const response = await answered;
  assert.equal(response.status(), 401);
});

test("the address of an artifact opens in a tab of its own", async (t) => {
  const page = await open(t);
  await createJob(page);
  const result = resultOf(20_000);
  const path = await store(page, result);
  const tab = await page.context().newPage();
  const response = await tab.goto(new URL(path, pageUrl).href);
  assert.equal(response.status(), 200);
  assert.equal(response.headers()["cache-control"], "no-store");
  assert.equal(response.headers()["x-content-type-options"], "nosniff");
  const answer = JSON.parse(await response.text());
  assert.equal(answer.text, result.slice(0, 8192));
});

test("path tricks in job and sha256 are refused", async (t) => {
  const page = await open(t);
  await createJob(page);
  const path = await store(page, resultOf(20_000));
  for (const target of [
    path.replace("jobs/j/", "jobs/j%2f..%2fj/"),
    path.replace("jobs/j/", "jobs/j%00/"),
    path.replace("jobs/j/", "jobs//"),
    path.toUpperCase().replace("V1/JOBS/J/TOOL-OUTPUT", "v1/jobs/j/tool-output"),
    `${path}0`,
    `${path}/`,
    path.replace("jobs/j/", "jobs/%zz/"),
  ]) {
    const [status] = (await send(page, "GET", target)).refusal();
    assert.ok([400, 404].includes(status), `${status} ${target}`);
  }
  const method = await send(page, "DELETE", path);
  assert.deepEqual(method.refusal(), [405, "invalid_request"]);
  assert.equal(method.headers.allow, "GET");
});

test("the status of a job is changed as jobs go, and ended jobs take no results", async (t) => {
  const page = await open(t);
  await createJob(page);
  const path = await store(page, resultOf(20_000));
  const change = (status) => send(page, "PATCH", "v1/jobs/j", { body: JSON.stringify({ status }) });
  assert.equal((await change("completed")).json().status, "completed");
  assert.deepEqual((await change("active")).refusal(), [409, "conflict"]);
  assert.deepEqual((await record(page, resultOf(100))).refusal(), [409, "conflict"]);
  // Artifacts survive archival.
  assert.equal((await change("archived")).status, 200);
  assert.equal(await readAll(page, path), resultOf(20_000));
});

test("the complete serialized body is refused when it is over max_input_bytes", async (t) => {
  const page = await open(t);
  const check = async (value) =>
    send(page, "POST", "v1/envelope-check", { body: JSON.stringify(value) });
  const messages = [{ role: "user", content: "漢" }];
  const bytes = bytesOf(JSON.stringify(messages));
  assert.deepEqual((await check({ body: messages, max_input_bytes: bytes })).json(), {
    fits: true,
    bytes,
    limit: bytes,
  });
  assert.equal((await check({ body: messages, max_input_bytes: bytes - 1 })).json().fits, false);
  assert.equal((await check({ body: messages })).json().limit, 8 * MIB);
  assert.deepEqual((await check({ body: 1, max_input_bytes: 0 })).refusal(), [400, "invalid_request"]);
});

test("each read verifies the chunks it needs, and no byte of altered ones is shown", async (t) => {
  const page = await open(t);
  await createJob(page);
  const path = await store(page, resultOf(200 * KIB));
  assert.ok((await tamper(page, "/chunk/", "flip")) > 1);
  const flipped = await send(page, "GET", path);
  assert.deepEqual(flipped.refusal(), [500, "integrity_failure"]);
  assert.ok(!flipped.text.includes("xxx"));
  await tamper(page, "/chunk/", "delete");
  assert.deepEqual((await send(page, "GET", path)).refusal(), [500, "integrity_failure"]);
  const again = await open(t);
  await createJob(again);
  const lies = await store(again, resultOf(200 * KIB));
  assert.equal(await tamper(again, "/artifact/", "flip"), 1);
  assert.deepEqual((await send(again, "GET", lies)).refusal(), [500, "integrity_failure"]);
});

test("two hundred reads at once get their exact bytes", async (t) => {
  const page = await open(t);
  await createJob(page);
  const result = serialized(Array.from({ length: 20_000 }, (_, n) => `line ${n}`).join("\n"));
  const path = await store(page, result);
  const texts = await page.evaluate(async (path) => {
    const reads = Array.from({ length: 200 }, async (_, n) => {
      const response = await fetch(`${path}?offset=${n * 1000}&limit=1000`);
      return (await response.json()).text;
    });
    return Promise.all(reads);
  }, path);
  assert.equal(texts.join(""), result.slice(0, 200_000));
});

test("two tabs share the session and its artifacts, also after the worker was stopped", async (t) => {
  const page = await open(t);
  await createJob(page);
  const path = await store(page, resultOf(20_000));
  const tab = await page.context().newPage();
  await tab.goto(pageUrl);
  assert.equal(await readAll(tab, path), resultOf(20_000));
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("ServiceWorker.enable");
  await devtools.send("ServiceWorker.stopAllWorkers");
  assert.equal(await readAll(page, path), resultOf(20_000));
});

/** Serves a copy of the page that can be changed and taken away. */
async function ownHost(t) {
  const root = await mkdtemp(join(tmpdir(), "page-"));
  await cp(required("DIST"), root, { recursive: true });
  const types = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".wasm": "application/wasm",
    ".json": "application/json",
  };
  const server = createServer(async (request, response) => {
    const path = new URL(request.url, "http://x").pathname.replace(/^\/page\//, "") || "index.html";
    try {
      const bytes = await readFile(join(root, path));
      response.setHeader("content-type", types[extname(path)] ?? "text/plain");
      response.end(bytes);
    } catch {
      response.statusCode = 404;
      response.end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = () =>
    new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    });
  t.after(async () => {
    if (server.listening) {
      await stop();
    }
    await rm(root, { recursive: true });
  });
  return { url: `http://127.0.0.1:${server.address().port}/page/`, root, stop };
}

test("offline after one visit, the page and the endpoint still work, in a second tab too", async (t) => {
  const host = await ownHost(t);
  const page = await open(t, host.url);
  await createJob(page);
  const path = await store(page, resultOf(20_000));
  await host.stop();
  const tab = await page.context().newPage();
  for (const offline of [page, tab]) {
    await offline.goto(host.url);
    await offline.getByRole("heading", { level: 1 }).waitFor();
    await offline.getByRole("button", { name: "Run", exact: true }).waitFor();
    assert.equal(await readAll(offline, path), resultOf(20_000));
  }
});

/** Changes the build's list of files. */
async function changeList({ root }, change) {
  const path = join(root, "files.js");
  const list = JSON.parse((await readFile(path, "utf8")).match(/const FILES = (.*);/)[1]);
  change(list);
  await writeFile(path, `const FILES = ${JSON.stringify(list)};`);
}

test("a build of which not all is there yet is not installed", async (t) => {
  const host = await ownHost(t);
  const page = await open(t, host.url);
  await changeList(host, (list) => {
    list.sha256["index.html"] = sha256Of("not there yet");
    list.version = "half";
  });
  const state = await page.evaluate(async () => {
    const registration = await navigator.serviceWorker.ready;
    const { installing } = await registration.update();
    while (installing.state === "installing") {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return [installing.state, registration.active.state];
  });
  assert.deepEqual(state, ["redundant", "activated"]);
  await host.stop();
  await page.reload();
  await page.getByRole("heading", { level: 1 }).waitFor();
});

test("a new build is shown at the next visit, whole, and is there offline", async (t) => {
  const host = await ownHost(t);
  const page = await open(t, host.url);
  // A build of which the page and one file that it loads have changed.
  const names = await readdir(host.root);
  const theme = names.find((name) => /^theme-.*\.js$/.test(name));
  const script = (await readFile(join(host.root, theme), "utf8")) + "\nwindow.newBuild = true;\n";
  await writeFile(join(host.root, "theme-new.js"), script);
  await rm(join(host.root, theme));
  const index = await readFile(join(host.root, "index.html"), "utf8");
  const newIndex = index
    .replaceAll(theme, "theme-new.js")
    .replace(/(<script[^>]*theme-new\.js"[^>]*?) integrity="[^"]*"/, "$1")
    .replace("<title>", "<title>New ");
  await writeFile(join(host.root, "index.html"), newIndex);
  await changeList(host, (list) => {
    delete list.sha256[theme];
    list.sha256["theme-new.js"] = sha256Of(script);
    list.sha256["index.html"] = sha256Of(newIndex);
    list.version = "new";
  });
  await page.reload();
  assert.match(await page.title(), /^New /);
  assert.equal(await page.evaluate(() => window.newBuild), true);
  // The new worker fetches its files and takes over.
  await page.evaluate(async () => {
    const settled = async () => {
      const { active, installing, waiting } = await navigator.serviceWorker.ready;
      const isThere = (await caches.keys()).some((name) => name.endsWith(" new"));
      return isThere && !installing && !waiting && active.state === "activated";
    };
    while (!(await settled())) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  });
  await host.stop();
  await page.reload();
  assert.match(await page.title(), /^New /);
  assert.equal(await page.evaluate(() => window.newBuild), true);
});
