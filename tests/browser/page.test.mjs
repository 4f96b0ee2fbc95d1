// The page from end to end: a log goes in, a run is watched, its bytes are compared with the file's
// own, and everything that can go wrong is said in a sentence.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm, truncate, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { embedded, embeddedUrl, launch, pageUrl } from "./chromium.mjs";

const DATABASE = "bounded-evidence";
const NEEDLE = "error: the one line that matters: Straße, 漢字, 🦀";

let browser;
let directory;
let context;
let page;
let faults;

before(async () => {
  browser = await launch();
  directory = await mkdtemp(join(tmpdir(), "evidence-page-"));
});
after(async () => {
  await browser?.close();
  if (directory) {
    await rm(directory, { recursive: true });
  }
});

// Every test has a profile of its own, and with it a database of its own.
beforeEach(async () => {
  context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  page = await open();
});
afterEach(async () => {
  await context.close();
  assert.deepEqual(faults, [], "the page asked other hosts, broke its policy or panicked");
});

/** Opens the page in another tab of the profile and waits until it can be used. */
async function open() {
  faults = [];
  const tab = await context.newPage();
  tab.setDefaultTimeout(20_000);
  tab.on("pageerror", (error) => faults.push(String(error)));
  tab.on("console", (message) => {
    if (message.type() === "error") {
      faults.push(message.text());
    }
  });
  tab.on("request", (request) => {
    if (!/^(blob|data):/.test(request.url()) && !request.url().startsWith(new URL("/", pageUrl).href)) {
      faults.push(`asked for ${request.url()}`);
    }
  });
  await tab.goto(embeddedUrl ?? pageUrl);
  const opened = embeddedUrl ? await embedded(tab) : tab;
  await ready(opened);
  return opened;
}

async function ready(tab) {
  await tab.locator("#files-label + ul li").first().waitFor();
  await tab.waitForFunction(() => !document.querySelector("button.primary").disabled);
}

/** A log of which nothing but the middle is of interest. */
function log(lines = 4000) {
  const noise = (line) => `[${line}] compiling «größe» ${"x".repeat(line % 50)} ✓\n`;
  const before = Array.from({ length: lines / 2 }, (_, line) => noise(line));
  const after = Array.from({ length: lines / 2 }, (_, line) => noise(line + lines));
  return [...before, `${NEEDLE}\n`, ...after].join("");
}

/** Drops files of this machine on the page, as a file manager does. */
async function drop(tab, files) {
  const session = await context.newCDPSession(tab);
  const data = { items: [], files, dragOperationsMask: 1 };
  const { x, y } = await tab.locator("html").boundingBox();
  const point = { x: Math.max(x, 0) + 120, y: Math.max(y, 0) + 300 };
  for (const type of ["dragEnter", "dragOver", "drop"]) {
    await session.send("Input.dispatchDragEvent", { type, ...point, data });
  }
  await session.detach();
}

async function file(name, content) {
  const path = join(directory, name);
  await writeFile(path, content);
  return path;
}

async function dropped(tab, name, content) {
  await drop(tab, [await file(name, content)]);
  await tab.locator(".file-name", { hasText: name }).waitFor();
}

const button = (tab, name) => tab.getByRole("button", { name, exact: true });

async function runToEnd(tab) {
  await tab.locator("button.primary").click();
  await tab.locator(".outcome").waitFor();
  return tab.locator(".outcome").innerText();
}

/** The text of an element as it is, without the layout's opinion of white space. */
const exact = (locator) => locator.evaluate((element) => element.textContent);

async function select(tab, start, end) {
  await tab.locator("input[name=start]").fill(String(start));
  await tab.locator("input[name=end]").fill(String(end));
  await tab.getByRole("button", { name: "Show", exact: true }).click();
}

const notices = (tab) => tab.locator(".notices").innerText();

async function notice(tab, pattern) {
  await tab.locator(".notice", { hasText: pattern }).waitFor();
  return notices(tab);
}

async function verifies(tab) {
  await button(tab, "Recompute with WebCrypto").click();
  await tab.locator(".agrees", { hasText: "WebCrypto agrees" }).waitFor();
}

test("a sample is there at once and its run finds the answer", async () => {
  const samples = JSON.parse(await readFile(new URL("../../web/samples/index.json", import.meta.url)));
  const [first] = samples;
  assert.equal(await page.locator("#task").inputValue(), first.task);
  assert.match(await page.locator("#script-verdict").innerText(), /4 lines, all valid actions/);
  assert.match(await runToEnd(page), /final answer/);
  const seen = await exact(page.locator("pre.exact[aria-label='What the model saw']").last());
  assert.equal(JSON.parse(seen.split("\n").slice(1).join("\n")).data, first.answer);
  assert.equal(await exact(page.locator("pre.bytes")), first.answer);
});

test("every sample runs to its answer", async () => {
  const samples = JSON.parse(await readFile(new URL("../../web/samples/index.json", import.meta.url)));
  for (const sample of samples) {
    await page.locator("#sample").selectOption(sample.file);
    await page.locator(".file-name", { hasText: sample.file }).waitFor();
    await page.waitForFunction((task) => document.getElementById("task").value === task, sample.task);
    assert.match(await runToEnd(page), /final answer/, sample.file);
    await page.locator("pre.bytes").waitFor();
    assert.equal(await exact(page.locator("pre.bytes")), sample.answer, sample.file);
    assert.ok((await page.locator(".digest").innerText()) === sample.sha256, sample.file);
  }
});

test("a dropped log is run, compared, kept over a reload, verified and deleted", async () => {
  const text = log();
  const bytes = Buffer.from(text);
  await dropped(page, "build.log", text);
  await page.locator("#needle").fill(NEEDLE);
  await button(page, "Write a script").click();
  assert.match(await runToEnd(page), /final answer/);
  assert.equal(await exact(page.locator("pre.bytes")), NEEDLE);

  // Any range, also one that begins and ends between multi-byte characters.
  const start = bytes.indexOf(Buffer.from("größe"));
  await select(page, start, start + 500);
  assert.equal(await exact(page.locator("pre.bytes")), bytes.subarray(start, start + 500).toString());
  await button(page, "Hex").click();
  const dump = await exact(page.locator("pre.hex"));
  const digits = dump.split("\n").map((line) => line.slice(10, 58).replaceAll(" ", "")).join("");
  assert.equal(digits, bytes.subarray(start, start + 500).toString("hex"));

  const download = page.waitForEvent("download");
  await button(page, "Download the exact bytes").click();
  assert.deepEqual(await readFile(await (await download).path()), bytes);

  const digest = createHash("sha256").update(bytes).digest("hex");
  assert.equal(await page.locator(".digest").innerText(), digest);
  await verifies(page);

  await page.reload();
  await ready(page);
  await page.locator(".artifact-choice").click();
  assert.equal(await page.locator(".digest").innerText(), digest);
  await verifies(page);

  await button(page, "Delete…").click();
  await button(page, "Keep").click();
  assert.equal(await page.locator(".artifact-choice").count(), 1);
  await button(page, "Delete…").click();
  await button(page, "Delete").click();
  await page.locator(".artifact-choice").waitFor({ state: "detached" });
  await page.reload();
  await ready(page);
  assert.equal(await page.locator(".artifact-choice").count(), 0);
});

test("all artifacts are deleted at once", async () => {
  await runToEnd(page);
  await dropped(page, "other.log", log(1000));
  await runToEnd(page);
  assert.equal(await page.locator(".artifact-choice").count(), 2);
  await button(page, "Delete all…").click();
  assert.match(await page.locator("dialog").innerText(), /Delete 2 artifacts/);
  await button(page, "Delete").click();
  await page.locator(".artifact-choice").first().waitFor({ state: "detached" });
  assert.equal(await page.locator(".artifact-choice").count(), 0);
});

test("the run is made step by step, paused, continued and reset", async () => {
  const steps = page.locator(".step");
  await button(page, "Step").click();
  await steps.nth(0).waitFor();
  await page.waitForTimeout(600);
  assert.equal(await steps.count(), 1);
  await button(page, "Continue").click();
  await button(page, "Pause").click();
  const paused = await steps.count();
  await page.waitForTimeout(800);
  assert.ok((await steps.count()) <= paused + 1, "a paused run goes on");
  await button(page, "Continue").click();
  await page.locator(".outcome").waitFor();
  assert.equal(await steps.count(), 4);
  await button(page, "Reset").click();
  assert.equal(await steps.count(), 0);
  assert.equal(await page.locator(".outcome").count(), 0);
});

test("the meter adds up what the timeline says", async () => {
  await runToEnd(page);
  const prompts = await page.locator(".figures div:first-child dd").allInnerTexts();
  const number = (text) => Number(text.replaceAll(/\D/g, ""));
  const bounded = prompts.map(number).reduce((sum, bytes) => sum + bytes);
  assert.equal(number(await page.locator("[data-figure=bounded]").innerText()), bounded);
  // The complete log stands in the prompts of the two steps after it was read.
  const [, read] = await page.locator(".figures div:last-child dd").allInnerTexts();
  const [shown, complete] = read.split(" shown of ").map(number);
  const unbounded = number(await page.locator("[data-figure=unbounded]").innerText());
  assert.equal(unbounded, bounded + 2 * (complete - shown));
});

test("the keyboard alone reaches everything", async () => {
  const focusOn = async (name) => {
    for (let presses = 0; presses < 80; presses += 1) {
      const focused = await page.evaluate(() => {
        const element = document.activeElement;
        return element.getAttribute("aria-label") ?? element.textContent.trim();
      });
      if (focused.startsWith(name)) {
        return;
      }
      await page.keyboard.press("Tab");
    }
    assert.fail(`Tab does not reach ${name}`);
  };
  await focusOn("Run");
  await page.keyboard.press("Enter");
  await page.locator(".outcome").waitFor();
  await focusOn("Selected bytes");
  await page.keyboard.press("Home");
  assert.match(await page.locator(".selection-summary").innerText(), /^Bytes 0–/);
  await page.keyboard.press("ArrowRight");
  assert.doesNotMatch(await page.locator(".selection-summary").innerText(), /^Bytes 0–/);
  await focusOn("Recompute with WebCrypto");
  await page.keyboard.press("Space");
  await page.locator(".agrees").waitFor();
  await focusOn("Delete…");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("dialog").isVisible(), false);
  assert.equal(await page.locator(".artifact-choice").count(), 1);
});

test("the keyboard's focus is never lost to a control that cannot be used any more", async () => {
  const focusIsOn = (text) =>
    page.waitForFunction((text) => document.activeElement?.textContent.trim() === text, text);
  await button(page, "Step").focus();
  await page.keyboard.press("Enter");
  await page.locator(".step").nth(0).waitFor();
  await focusIsOn("Step");
  await button(page, "Reset").focus();
  await page.keyboard.press("Enter");
  await focusIsOn("Run");
  await page.keyboard.press("Enter");
  await focusIsOn("Pause");
  await page.keyboard.press("Enter");
  await focusIsOn("Continue");
  await page.keyboard.press("Enter");
  await page.locator(".outcome").waitFor();
  await focusIsOn("Run again");
  // What has the focus elsewhere keeps it.
  await button(page, "Run again").click();
  await page.locator("#task").focus();
  await page.locator(".outcome").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), "task");
  await button(page, "Delete all…").focus();
  await page.keyboard.press("Enter");
  await button(page, "Delete").focus();
  await page.keyboard.press("Enter");
  await focusIsOn("Artifacts");
});

test("bytes are chosen on the map by clicking and dragging", async () => {
  await runToEnd(page);
  await page.locator("pre.bytes").waitFor();
  const before = await page.locator(".selection-summary").innerText();
  await page.locator(".byte-map").scrollIntoViewIfNeeded();
  const box = await page.locator(".byte-map").boundingBox();
  const size = Number((await page.locator(".identity dd").first().innerText()).replaceAll(/\D/g, ""));
  await page.mouse.click(box.x + box.width / 2, box.y + 10);
  await page.locator(".selection-summary", { hasNotText: before }).waitFor();
  const chosen = async () =>
    (await page.locator(".selection-summary").innerText())
      .match(/Bytes ([\d,]+)–([\d,]+)/)
      .slice(1)
      .map((position) => Number(position.replaceAll(",", "")));
  let [start, end] = await chosen();
  // A pixel is some hundred bytes wide.
  assert.ok(Math.abs((start + end) / 2 / size - 0.5) < 0.02, "the middle is chosen");
  await page.mouse.move(box.x + box.width * 0.25, box.y + 10);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 10, { steps: 4 });
  await page.mouse.up();
  [start, end] = await chosen();
  assert.ok(Math.abs(start / size - 0.25) < 0.02 && Math.abs(end / size - 0.5) < 0.02);
});

test("a range that cuts a character is said to, and widened", async () => {
  await dropped(page, "emoji.log", `${"🦀".repeat(400)}`);
  await runToEnd(page);
  await select(page, 401, 407);
  assert.match(await page.locator(".byte-view .problem").innerText(), /does not align to UTF-8/);
  await button(page, "Widen to whole characters").click();
  assert.equal(await exact(page.locator("pre.bytes")), "🦀🦀");
  assert.match(await page.locator(".selection-summary").innerText(), /Bytes 400–408/);
  await select(page, 5, 2);
  assert.match(await page.locator(".byte-view .problem").innerText(), /0 <= start < end/);
  await select(page, 0, 99_999);
  assert.match(await page.locator(".byte-view .problem").innerText(), /exceeds the stored byte count/);
});

test("a byte order mark, CRLF, NUL and control characters are kept exactly", async () => {
  const text = `\ufeffone\r\ntwo\rthree\n\0\u0001\u001b[31mred\u001b[0m\u202eabc\u2028${"tail\r\n".repeat(200)}\0`;
  await dropped(page, "odd.log", text);
  await runToEnd(page);
  const bytes = Buffer.from(text);
  await page.locator(".artifact-choice").click();
  await select(page, 0, bytes.length);
  assert.equal(await exact(page.locator("pre.bytes")), text);
  assert.equal(
    await page.locator(".digest").innerText(),
    createHash("sha256").update(bytes).digest("hex"),
  );
});

test("log text is shown as text, whatever it contains", async () => {
  const markup = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script></pre>`;
  await dropped(page, "markup.log", `${markup}\n`.repeat(40));
  await runToEnd(page);
  assert.notEqual(await page.title(), "owned");
  assert.equal(await page.locator("main img, main script").count(), 0);
  await page.locator(".artifact-choice").click();
  await select(page, 0, Buffer.byteLength(markup));
  assert.equal(await exact(page.locator("pre.bytes")), markup);
});

test("a 300 MB file is refused by its size and the page stays alive", async () => {
  const path = await file("huge.log", "");
  await truncate(path, 300_000_000);
  await drop(page, [path]);
  const text = await notice(page, "huge.log");
  assert.match(text, /300,000,000 bytes/);
  assert.match(text, /at most 16 MiB/);
  assert.match(await runToEnd(page), /final answer/);
});

test("a binary file is refused with the byte at which it stops being text", async () => {
  await drop(page, [await file("photo.log", Buffer.from([0x61, 0x62, 0xc3, 0xa9, 0xff, 0xfe]))]);
  assert.match(await notice(page, "photo.log"), /not UTF-8 text: the bytes from 4 on/);
});

test("an empty file is taken and read as what it is", async () => {
  await dropped(page, "empty.log", "");
  assert.match(await runToEnd(page), /final answer/);
  const seen = await page.locator("pre.exact[aria-label='What the model saw']").allTextContents();
  assert.equal(seen[1], "");
});

test("a file that changes while it is read is refused", async () => {
  const path = await file("moving.log", "before");
  await page.evaluate(() => {
    const read = Blob.prototype.arrayBuffer;
    Blob.prototype.arrayBuffer = async function () {
      await new Promise((resolve) => {
        window.letItRead = resolve;
      });
      return read.call(this);
    };
  });
  await drop(page, [path]);
  await page.waitForFunction(() => window.letItRead);
  await writeFile(path, "after, and longer");
  await utimes(path, new Date(), new Date(Date.now() + 10_000));
  await page.evaluate(() => window.letItRead());
  assert.match(await notice(page, "moving.log"), /changed or was moved while it was being read/);
});

test("a folder is walked, without what belongs to version control", async () => {
  const folder = join(directory, "project");
  await mkdir(join(folder, "logs"), { recursive: true });
  await mkdir(join(folder, ".git"), { recursive: true });
  await writeFile(join(folder, "logs", "build.log"), log(200));
  await writeFile(join(folder, "notes.txt"), "notes");
  await writeFile(join(folder, ".git", "config"), "secret");
  await drop(page, [folder]);
  await page.locator(".file-name", { hasText: "project/logs/build.log" }).waitFor();
  assert.deepEqual(await page.locator(".file-name").allInnerTexts(), [
    "project/logs/build.log",
    "project/notes.txt",
  ]);
});

test("text is pasted exactly, and half a surrogate pair is refused", async () => {
  const paste = (text) =>
    page.evaluate((text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text/plain", text);
      document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true }));
    }, text);
  await paste("one\r\ntwo\n");
  await page.locator(".file-name", { hasText: "pasted-1.txt" }).waitFor();
  await runToEnd(page);
  const seen = await page.locator("pre.exact[aria-label='What the model saw']").allTextContents();
  assert.equal(seen[1], "one\r\ntwo\n");
  await page.evaluate(() => {
    const clipboardData = { files: [], getData: () => "half \ud83d" };
    const event = new Event("paste", { bubbles: true });
    Object.defineProperty(event, "clipboardData", { value: clipboardData });
    Object.setPrototypeOf(event, ClipboardEvent.prototype);
    document.body.dispatchEvent(event);
  });
  assert.match(await notice(page, "surrogate"), /left out/);
});

test("names that the model may not read are refused", async () => {
  await drop(page, [await file("server.pem", "-----BEGIN")]);
  assert.match(await notice(page, "server.pem"), /left out/);
});

test("limits are checked where they are typed", async () => {
  const input = page.locator("input[name=max_inline_bytes]");
  await input.fill("100");
  assert.match(await page.locator("#limit-problems").innerText(), /at least 512/);
  assert.equal(await input.getAttribute("aria-invalid"), "true");
  assert.equal(await page.locator("button.primary").isDisabled(), true);
  await button(page, "Restore the defaults").click();
  assert.equal(await page.locator("#limit-problems").innerText(), "");
  await page.locator("input[name=max_context_chars]").fill("500");
  assert.match(await runToEnd(page), /more characters than max_context_chars allows/);
});

test("lines of the script that are no action are named, and the run says what they were", async () => {
  await page.locator("#script").fill('{"tool":"list_files"}\nread it\n{"tool":"run"}\n{"final":"x"}');
  const verdict = await page.locator("#script-verdict").innerText();
  assert.match(verdict, /Line 2: response is not valid JSON/);
  assert.match(verdict, /Line 3: unknown tool: run/);
  await runToEnd(page);
  assert.match(await page.locator(".step").nth(1).innerText(), /error: response is not valid JSON/);
  await page.locator("#script").fill('{"tool":"read_file","path":".tool-artifacts/{{artifact_id}}/bytes/0-1"}');
  assert.match(await runToEnd(page), /before any result was externalized/);
});

test("without IndexedDB artifacts stay in memory, and the page says so", async () => {
  await page.close();
  await context.addInitScript(() => {
    Object.defineProperty(globalThis, "indexedDB", {
      get() {
        throw new DOMException("denied", "SecurityError");
      },
    });
  });
  page = await open();
  assert.match(await notices(page), /will not survive a reload/);
  assert.match(await runToEnd(page), /final answer/);
  await verifies(page);
  await page.reload();
  await ready(page);
  assert.equal(await page.locator(".artifact-choice").count(), 0);
});

test("a used-up quota ends the run, and earlier artifacts stay readable", async () => {
  // In a profile that has stored nothing: the browser remembers for a while how much room there was.
  await context.close();
  context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const blank = await context.newPage();
  const session = await context.newCDPSession(blank);
  const origin = new URL(pageUrl).origin;
  await session.send("Storage.overrideQuotaForOrigin", { origin, quotaSize: 3_000_000 });
  page = await open();
  await runToEnd(page);
  assert.equal(await page.locator(".artifact-choice").count(), 1);
  await dropped(page, "large.log", log(200_000));
  const outcome = await runToEnd(page);
  assert.match(outcome, /was not stored, and so it was not shown/);
  assert.match(outcome, /storage is exhausted/);
  const shown = await page.locator("pre.exact[aria-label='What the model saw']").last().innerText();
  assert.match(shown, /^error: storage is exhausted/);
  assert.equal(await page.locator(".artifact-choice").count(), 1);
  await page.locator(".artifact-choice").click();
  await verifies(page);
});

const toolOutput = (tab) => tab.getByRole("radio", { name: "A bounded tool result" }).check();

test("under contract B the script is written anew, and the run reads the exact bytes by cursor", async () => {
  const content = log();
  await dropped(page, "build.log", content);
  await page.locator("#needle").fill(NEEDLE);
  await button(page, "Write a script").click();
  await toolOutput(page);
  const script = await page.locator("#script").inputValue();
  assert.match(script, /"tool":"akh_read_tool_output","sha256":"\{\{sha256\}\}","offset":\{\{offset:/);
  assert.match(await page.locator("#script-verdict").innerText(), /all valid actions/);
  assert.match(await runToEnd(page), /final answer/);
  const seen = page.locator("pre.exact[aria-label='What the model saw']");
  const bounded = JSON.parse(await exact(seen.nth(1)));
  assert.equal(bounded.data.kind, "tool_output_ref");
  assert.ok(Buffer.byteLength(JSON.stringify(bounded)) <= 16 * 1024);
  const range = JSON.parse(await exact(seen.nth(2)));
  assert.equal(range.data.text, NEEDLE);

  // The artifact is the serialized result, and the page's map says which of it was shown.
  const complete = `{"success":true,"text":${JSON.stringify(content)},"data":null,"receipt":null}`;
  const sha256 = createHash("sha256").update(complete).digest("hex");
  assert.equal(bounded.data.sha256, sha256);
  assert.equal(await page.locator("code.digest").innerText(), sha256);
  const offset = Buffer.from(complete).indexOf(NEEDLE);
  assert.deepEqual([range.data.offset, range.data.next_offset], [offset, offset + Buffer.byteLength(NEEDLE)]);
  const [, from, to] = bounded.text.match(/bytes (\d+) to (\d+) of the complete result/);
  const omitted = await page.locator(".legend-entry[data-kind=omitted] .figure").innerText();
  assert.equal(omitted.replaceAll(",", ""), `${from}–${to}`);
  await verifies(page);
});

test("under contract B the artifact's address opens in a tab and says how long it is kept", async () => {
  await page.waitForFunction(() => navigator.serviceWorker.controller);
  await toolOutput(page);
  assert.match(await runToEnd(page), /final answer/);
  const link = page.locator(".address a");
  const [tab] = await Promise.all([context.waitForEvent("page"), link.click()]);
  await tab.waitForLoadState();
  const answer = JSON.parse(await tab.locator("body").innerText());
  assert.equal(answer.sha256, await page.locator("code.digest").innerText());
  await tab.close();
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await button(page, "Copy the address").click();
  await button(page, "Copied").waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.equal(copied, new URL(await link.getAttribute("href"), pageUrl).href);
  // The run has ended: the day is known, a week from now.
  const until = page.locator("dt", { hasText: "Kept until" }).locator("+ dd");
  const week = await page.evaluate(() => new Date(Date.now() + 7 * 86_400_000).toLocaleDateString());
  assert.ok((await until.innerText()).startsWith(week), await until.innerText());
});

test("artifacts of both contracts are kept side by side, and a run's are deleted together", async () => {
  await runToEnd(page);
  await toolOutput(page);
  assert.equal(await page.locator(".step").count(), 0, "the run was reset");
  await runToEnd(page);
  assert.equal(await page.locator(".artifact-choice").count(), 2);
  await page.reload();
  await ready(page);
  assert.equal(await page.locator(".artifact-choice").count(), 2);
  await page.locator(".artifact-choice", { hasText: "tool result" }).click();
  await verifies(page);
  await button(page, "Delete…").click();
  await button(page, "Delete").click();
  await page.waitForFunction(() => document.querySelectorAll(".artifact-choice").length === 1);
  await page.locator(".artifact-choice", { hasText: "text" }).click();
  await verifies(page);
});

test("a run that a tab left behind is cancelled, so that its time begins, and one of a tab that lives is not", async () => {
  const left = await open();
  const before = context.pages().length;
  for (const tab of [page, left]) {
    await toolOutput(tab);
    for (let step = 0; step < 2; step += 1) {
      await button(tab, "Step").click();
      await tab.locator(".step").nth(step).waitFor();
    }
  }
  await context.pages().at(-1).close();
  assert.equal(context.pages().length, before - 1);
  const later = await open();
  await later.waitForFunction(() => document.querySelectorAll(".artifact-choice").length === 2);
  const kept = [];
  for (const choice of await later.locator(".artifact-choice").all()) {
    await choice.click();
    await later.waitForFunction((choice) => choice.ariaPressed === "true", await choice.elementHandle());
    kept.push(await later.locator("dt", { hasText: "Kept until" }).locator("+ dd").innerText());
  }
  const isOpen = (until) => until === "7 days after its run has ended";
  assert.deepEqual(kept.map(isOpen).sort(), [false, true], `${kept}`);
});

test("what has expired is swept when the page opens", async () => {
  await toolOutput(page);
  await runToEnd(page);
  await page.close();
  // Nine days later.
  await context.clock.install({ time: Date.now() + 9 * 86_400_000 });
  page = await open();
  await page.waitForFunction(() => document.querySelectorAll(".artifact-choice").length === 0);
});

for (const part of ["chunk", "artifact"]) {
  test(`altered tool output is listed and not shown: a changed ${part}`, async () => {
    await runToEnd(page);
    await toolOutput(page);
    await runToEnd(page);
    await page.evaluate(
      async ([name, part]) => {
        const settled = (request) =>
          new Promise((resolve, reject) => {
            request.onsuccess = () => resolve(request.result);
            request.onerror = () => reject(request.error);
          });
        const database = await settled(indexedDB.open(name));
        const values = database.transaction("values", "readwrite").objectStore("values");
        const isOne = (key) => key.startsWith("tool-output/") && key.includes(`/${part}/`);
        const [key] = (await settled(values.getAllKeys())).filter(isOne);
        const value = await settled(values.get(key));
        value[0] ^= 1;
        await settled(values.put(value, key));
        database.close();
      },
      [DATABASE, part],
    );
    await page.reload();
    await ready(page);
    assert.equal(await page.locator(".artifact-choice").count(), 2);
    await page.locator(".artifact-choice", { hasText: "tool result" }).click();
    await page.getByText(/none of them are shown/).waitFor();
    await button(page, "Delete…").click();
    await button(page, "Delete").click();
    await page.waitForFunction(() => document.querySelectorAll(".artifact-choice").length === 1);
  });
}

test("a database of a newer page is left alone", async () => {
  await page.close();
  const blank = await context.newPage();
  await blank.goto(new URL("samples/index.json", pageUrl).href);
  await blank.evaluate(async (name) => {
    await new Promise((resolve) => {
      indexedDB.deleteDatabase(name).onsuccess = resolve;
    });
    await new Promise((resolve) => {
      const request = indexedDB.open(name, 1000);
      request.onsuccess = () => {
        request.result.close();
        resolve();
      };
    });
  }, DATABASE);
  await blank.close();
  page = await open();
  assert.match(await notices(page), /will not survive a reload/);
  assert.match(await runToEnd(page), /final answer/);
});

test("another tab that upgrades the database gets it, and this one says to reload", async () => {
  await runToEnd(page);
  const other = await context.newPage();
  await other.goto(new URL("samples/index.json", pageUrl).href);
  await other.evaluate(
    (name) =>
      new Promise((resolve, reject) => {
        const request = indexedDB.open(name, 1000);
        request.onsuccess = () => resolve(request.result.close());
        request.onblocked = () => reject(new Error("the page holds on to its database"));
      }),
    DATABASE,
  );
  await other.close();
  assert.match(await runToEnd(page), /another tab upgraded or deleted the database; reload this page/);
});

test("two tabs see each other's artifacts", async () => {
  const other = await open();
  assert.equal(await other.locator(".artifact-choice").count(), 0);
  await runToEnd(page);
  await other.locator(".artifact-choice").waitFor();
  await other.locator(".artifact-choice").click();
  await verifies(other);
  await button(page, "Delete all…").click();
  await button(page, "Delete").click();
  await other.locator(".artifact-choice").waitFor({ state: "detached" });
  await other.locator(".artifact").waitFor({ state: "detached" });
});

test("bytes that were altered in the database are not shown", async () => {
  await runToEnd(page);
  await page.evaluate(alterOneByte, DATABASE);
  await button(page, "Recompute with WebCrypto").click();
  const problem = page.locator(".artifact .problem");
  await problem.waitFor();
  assert.match(await problem.innerText(), /digest does not match/);
  assert.equal(await page.locator("pre.bytes").count(), 0);
  await page.reload();
  await ready(page);
  await page.locator(".artifact-choice").click();
  await problem.waitFor();
  assert.match(await problem.innerText(), /none of them are shown/);
  assert.equal(await page.locator("pre.bytes").count(), 0);
  // The run does not show them to the model either.
  assert.doesNotMatch(await runToEnd(page), /final answer/);
  await button(page, "Delete…").click();
  await button(page, "Delete").click();
  await page.locator(".artifact-choice").waitFor({ state: "detached" });
  assert.match(await runToEnd(page), /final answer/);
});

/** Flips a bit of the first chunk that is found; runs in the page. */
async function alterOneByte(name) {
  const database = await new Promise((resolve, reject) => {
    const request = indexedDB.open(name);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  const [storeName] = database.objectStoreNames;
  const transaction = database.transaction(storeName, "readwrite");
  const cursor = transaction.objectStore(storeName).openCursor();
  cursor.onsuccess = () => {
    if (!cursor.result.key.includes("/chunk/")) {
      cursor.result.continue();
      return;
    }
    const bytes = cursor.result.value.slice();
    bytes[100] ^= 1;
    cursor.result.update(bytes);
  };
  await new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
  database.close();
}

test("a page that is closed during a put leaves all of an artifact or none", async () => {
  const path = await file("closing.log", log(250_000));
  for (const milliseconds of [0, 60, 150, 300, 600]) {
    await drop(page, [path]);
    await page.locator(".file-name", { hasText: "closing.log" }).waitFor();
    await page.locator("button.primary").click();
    await page.locator(".step").first().waitFor();
    await page.waitForTimeout(250 + milliseconds);
    await page.close();
    page = await open();
    const kept = await page.locator(".artifact-choice").count();
    assert.ok(kept <= 1);
    if (kept === 1) {
      await page.locator(".artifact-choice").click();
      await verifies(page);
      await button(page, "Delete all…").click();
      await button(page, "Delete").click();
      await page.locator(".artifact-choice").waitFor({ state: "detached" });
    }
  }
});

// Embedded, the page around it decides; that is tested with the element.
const skip = Boolean(embeddedUrl);
test("the theme follows the system until one is chosen, which is remembered", { skip }, async () => {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.emulateMedia({ colorScheme: "light" });
  const light = await background();
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await background();
  assert.notEqual(light, dark);
  await page.emulateMedia({ colorScheme: "light" });
  await page.reload();
  await ready(page);
  await button(page, "Dark theme").click();
  assert.equal(await background(), dark);
  await page.reload();
  await ready(page);
  assert.equal(await background(), dark);
});

// Set SCREENSHOTS to a directory to keep what this test looks at.
for (const colorScheme of ["light", "dark"]) {
  for (const width of [1440, 800, 360]) {
    test(`the page fits ${width} pixels, ${colorScheme}`, async () => {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await page.reload();
      await ready(page);
      await runToEnd(page);
      await page.locator("pre.bytes").waitFor();
      await verifies(page);
      const overflow = await page.evaluate(
        () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
      );
      assert.equal(overflow, 0, "the page scrolls sideways");
      if (process.env.SCREENSHOTS) {
        const path = join(process.env.SCREENSHOTS, `page-${colorScheme}-${width}.png`);
        await page.evaluate(() => window.scrollTo(0, 0));
        await page.screenshot({ path, fullPage: width < 1180 });
      }
    });
  }
}

/** Chooses the recorded build and starts the run. */
async function startBuild(tab) {
  const [sample] = JSON.parse(await readFile(new URL("../../web/samples/recordings.json", import.meta.url)));
  await tab.locator(`#sample option[value='${sample.file}']`).waitFor({ state: "attached" });
  await tab.locator("#sample").selectOption(sample.file);
  await tab.waitForFunction((task) => document.getElementById("task").value === task, sample.task);
  return sample;
}

/** What a recording writes to a stream. */
async function recorded(file, stream) {
  const lines = await readFile(new URL(`../../web/samples/${file}`, import.meta.url), "utf8");
  const pieces = lines.trimEnd().split("\n").map(JSON.parse);
  return pieces.filter(([, to]) => to === stream).map(([, , text]) => text).join("");
}

test("a recorded build runs as a process: both streams live, what the model has seen of them, and its captures", async () => {
  const sample = await startBuild(page);
  assert.match(await page.locator("#script-verdict").innerText(), /7 lines, all valid actions/);
  await page.locator("button.primary").click();
  const process = page.locator(".process");
  await process.locator(".badge", { hasText: /running, \d/ }).waitFor();
  assert.match(await process.innerText(), /make -k bzip2/);
  // The first line is there long before the last.
  await process.locator(".stream-tail", { hasText: "blocksort.c" }).first().waitFor();
  assert.equal(await page.locator(".captures li").count(), 0);
  await page.locator(".outcome").waitFor({ timeout: 60_000 });
  assert.match(await page.locator(".outcome").innerText(), new RegExp(`The build says: ${sample.answer.slice(0, 20)}`));

  assert.equal(await process.locator(".badge").innerText(), "exit code 2");
  const stderr = await recorded(sample.file, "stderr");
  const digest = createHash("sha256").update(stderr).digest("hex");
  const last = JSON.parse(await exact(page.locator("pre.exact[aria-label='What the model saw']").last()));
  assert.deepEqual([last.stderr.sha256, last.stderr.text], [digest, sample.answer]);
  const tail = await exact(process.locator(".stream-tail pre").last());
  assert.ok(stderr.endsWith(tail) && tail.includes("Target 'bzip2' not remade"), tail);
  assert.match(await process.locator(".stream-head").last().innerText(), /the model has seen [\d,]+ bytes/);
  assert.ok((await process.locator(".stream-map").last().locator("rect").count()) >= 4);

  const total = Buffer.byteLength(stderr) + Buffer.byteLength(await recorded(sample.file, "stdout"));
  const captures = page.locator(".captures li");
  await captures.waitFor();
  assert.match(await captures.innerText(), new RegExp(`${total.toLocaleString("en")} bytes\\s+kept until`));
  assert.match(await page.locator(".storage-used").innerText(), /Storage used: [\d,]+ bytes in 1 artifact and 1 capture/);
  await button(page, "Delete the captured output of process-1").click();
  assert.match(await page.locator("dialog").innerText(), /What the model saw of it stays/);
  await button(page, "Delete").click();
  await captures.waitFor({ state: "detached" });
  assert.match(await process.innerText(), /not stored \(any more\)/);
  assert.match(await page.locator(".storage-used").innerText(), /in 1 artifact\./);
});

test("a process can be stopped, and a run that is reset stops its own; captures outlive both and a reload", async () => {
  await startBuild(page);
  const process = page.locator(".process");
  const started = async () => {
    await page.locator("button.primary").click();
    await process.locator(".stream-tail", { hasText: "blocksort.c" }).first().waitFor();
  };
  await started();
  await button(page, "Pause").click();
  await button(page, "Stop").click();
  await process.locator(".badge", { hasText: "stopped" }).waitFor();
  await page.locator(".captures li").first().waitFor();
  await button(page, "Reset").click();
  assert.equal(await process.count(), 0);
  await started();
  await button(page, "Reset").click();
  await page.waitForFunction(() => document.querySelectorAll(".captures li").length === 2);
  await page.reload();
  await ready(page);
  await page.waitForFunction(() => document.querySelectorAll(".captures li").length === 2);
});

test("a process that is deleted with its run is ended, and says so", async () => {
  await startBuild(page);
  const process = page.locator(".process");
  await page.locator("button.primary").click();
  await process.locator(".stream-tail", { hasText: "blocksort.c" }).first().waitFor();
  await button(page, "Pause").click();
  await button(page, "Stop").focus();
  await page.keyboard.press("Enter");
  await process.locator(".badge", { hasText: "stopped" }).waitFor();
  await page.waitForFunction(() => document.activeElement?.textContent.trim() === "process-1");
  await page.locator(".captures li").first().waitFor();
  await button(page, "Reset").click();

  await page.locator("button.primary").click();
  await process.locator(".stream-tail", { hasText: "blocksort.c" }).first().waitFor();
  await button(page, "Pause").click();
  await button(page, "Delete all…").click();
  const question = await page.locator("dialog").innerText();
  assert.match(question, /and 1 capture of processes, with their bytes/);
  assert.match(question, /A process runs: it is ended/);
  await button(page, "Delete").click();
  await process.locator(".badge", { hasText: "deleted" }).waitFor();
  assert.match(await process.innerText(), /ended and deleted with all that its run kept/);
  assert.equal(await process.getAttribute("data-running"), "false");
  await page.locator(".captures li").first().waitFor({ state: "detached" });
  assert.equal(await page.locator(".notice").count(), 0);
});

test("a process of a tab that is gone is interrupted, and one of a tab that lives is not", async () => {
  await startBuild(page);
  await page.locator("button.primary").click();
  await page.locator(".process .badge", { hasText: "running" }).waitFor();
  // Another tab opens the same database while it runs; the build comes to its end all the same.
  const other = await open();
  await page.bringToFront();
  await page.locator(".process .badge", { hasText: "exit code 2" }).waitFor({ timeout: 60_000 });
  await other.bringToFront();
  await other.locator(".captures li").waitFor();
  await startBuild(other);
  await other.locator("button.primary").click();
  await other.locator(".process .badge", { hasText: "running" }).waitFor();
  await other.close();
  const later = await open();
  await later.locator(".captures li").waitFor();
  assert.equal(await later.locator(".captures li").count(), 1, "what was interrupted has no capture");
});
