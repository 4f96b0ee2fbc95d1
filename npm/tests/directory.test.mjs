// The store in a directory: on the disk, with processes that are killed.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { appendFile, mkdir, mkdtemp, readFile, readdir, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { hostname, tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";

import { openStore } from "bounded-evidence";
import { DirectoryStore } from "bounded-evidence/node";

const worker = fileURLToPath(new URL("directory-worker.mjs", import.meta.url));
const bytes = (text) => new Uint8Array(Buffer.from(text));
const text = (value) => value && Buffer.from(value).toString();
const put = (...pairs) => ({ expect: [], put: pairs.map(([key, value]) => [key, bytes(value)]), delete: [] });

let parent;
let root;
beforeEach(async () => {
  parent = await mkdtemp(path.join(tmpdir(), "bounded-evidence-"));
  root = path.join(parent, "store");
});
afterEach(() => rm(parent, { recursive: true }));

test("what was stored is there when the directory is opened again", async () => {
  const first = await DirectoryStore.open(root);
  const { artifactId } = await (await openStore({ kind: "custom", store: first })).artifacts("job").put("漢字".repeat(100_000));
  await first.close();
  const second = await DirectoryStore.open(root);
  const artifacts = (await openStore({ kind: "custom", store: second })).artifacts("job");
  assert.deepEqual(await artifacts.list(), [artifactId]);
  assert.equal(text(await artifacts.read(artifactId)), "漢字".repeat(100_000));
  await second.close();
});

test("a commit happens when its expectations hold, and changes nothing otherwise", async () => {
  const store = await DirectoryStore.open(root);
  await store.commit(put(["a", "1"], ["b", ""]));
  const batch = (expect) => ({ expect, put: [["c", bytes("2")]], delete: ["a"] });
  for (const expect of [[["a", bytes("2")]], [["a", undefined]], [["x", bytes("")]], [["a", bytes("1")], ["b", undefined]]]) {
    await assert.rejects(store.commit(batch(expect)), { code: "conflict" });
  }
  assert.deepEqual((await store.get(["a", "b", "c"])).map(text), ["1", "", undefined]);
  await store.commit(batch([["a", bytes("1")], ["b", bytes("")], ["x", undefined]]));
  assert.deepEqual((await store.get(["a", "b", "c"])).map(text), [undefined, "", "2"]);
  assert.deepEqual((await store.list("")).sort(), ["b", "c"]);
  await store.close();
});

test("of commits at the same moment that expect the same, one happens", async () => {
  const store = await DirectoryStore.open(root);
  const commits = Array.from({ length: 20 }, (_, index) =>
    store.commit({ expect: [["a", undefined]], put: [["a", bytes(`${index}`)]], delete: [] }),
  );
  const settled = await Promise.allSettled(commits);
  assert.equal(settled.filter(({ status }) => status === "fulfilled").length, 1);
  await store.close();
});

test("a read sees one moment, also while files are merged and removed", async () => {
  const store = await DirectoryStore.open(root);
  let writing = true;
  const write = async () => {
    for (let round = 0; round < 300; round += 1) await store.commit(put(["a", `${round}`], [`k${round % 90}`, "x"], ["b", `${round}`]));
    writing = false;
  };
  const read = async () => {
    while (writing) {
      const [a, b] = (await store.get(["a", "b"])).map(text);
      assert.equal(a, b);
      // A read of nothing takes no time, and would leave the writer none.
      await new Promise(setImmediate);
    }
  };
  await Promise.all([write(), read(), read()]);
  const files = await readdir(path.join(root, "batches"));
  assert.ok(files.length <= 70, `${files.length} files`);
  await store.close();
  const again = await DirectoryStore.open(root);
  assert.equal((await again.list("k")).length, 90);
  assert.equal(text((await again.get(["a"]))[0]), "299");
  await again.close();
});

test("what was deleted stays deleted, whatever files are removed", async () => {
  const values = new Map();
  let store = await DirectoryStore.open(root);
  let seed = 7;
  const random = (below) => {
    seed = (seed * 1103515245 + 12345) % 2 ** 31;
    return (seed >> 8) % below;
  };
  for (let round = 0; round < 400; round += 1) {
    const batch = { expect: [], put: [], delete: [] };
    for (let change = random(4); change >= 0; change -= 1) {
      const key = `k${random(25)}`;
      if (batch.put.some(([put]) => put === key) || batch.delete.includes(key)) continue;
      // Some are large, so that their files are not merged.
      if (random(2)) batch.put.push([key, bytes(`${round}`.repeat(random(10) ? 5 : 100_000))]);
      else batch.delete.push(key);
    }
    await store.commit(batch);
    for (const key of batch.delete) values.delete(key);
    for (const [key, value] of batch.put) values.set(key, text(value));
    if (random(25) === 0) {
      await store.close();
      store = await DirectoryStore.open(root);
    }
    assert.deepEqual((await store.list("")).sort(), [...values.keys()].sort(), `round ${round}`);
  }
  const keys = [...values.keys()];
  assert.deepEqual((await store.get(keys)).map(text), [...values.values()]);
  await store.close();
});

/** Runs the worker to its end or its death; what it said that it has stored. */
function work(first, last, killAt) {
  const { stdout, stderr, signal, status } = spawnSync(process.execPath, [worker, root, `${first}`, `${last}`], {
    env: { ...process.env, KILL_AT: `${killAt}` },
    encoding: "utf8",
  });
  assert.ok(signal === "SIGKILL" || status === 0, stderr);
  const rounds = stdout.split("\n").filter((line) => /^\d+$/.test(line)).map(Number);
  return { stored: rounds.at(-1), killed: signal === "SIGKILL" };
}

/** Checks that the directory holds all rounds up to a number that is at least `stored`; that number. */
async function check(stored) {
  const store = await DirectoryStore.open(root);
  const counter = text((await store.get(["counter"]))[0]);
  if (stored !== undefined) assert.ok(counter !== undefined && Number(counter) >= stored, `${counter} of ${stored}`);
  const last = counter === undefined ? -1 : Number(counter);
  const kept = [2, 1, 0].map((back) => last - back).filter((round) => round >= 0);
  assert.deepEqual((await store.list("")).sort(), [...(counter === undefined ? [] : ["counter"]), ...kept.flatMap((round) => [`left/${round}`, `right/${round}`])].sort());
  for (const round of kept) {
    const [left, right] = await store.get([`left/${round}`, `right/${round}`]);
    assert.equal(text(left), `${round}`.repeat(100 + (round % 7) * 1000));
    assert.deepEqual(left, right);
  }
  await store.close();
  return last;
}

test("a process that is killed before any change of the disk loses nothing that it has stored", async () => {
  let kills = 0;
  for (let killAt = 1; ; killAt += 1) {
    await rm(root, { recursive: true, force: true });
    const { stored, killed } = work(0, 6, killAt);
    const last = await check(stored);
    // What is found is at most one commit ahead of what was said.
    assert.ok(last <= (stored ?? -1) + 1);
    if (!killed) break;
    kills += 1;
  }
  console.log(`killed at each of ${kills} changes`);
  assert.ok(kills > 60, `${kills} kills`);
});

test("killed again and again, at random, the store goes on where it was", async () => {
  let last = -1;
  for (let kill = 0; kill < 25; kill += 1) {
    const child = spawn(process.execPath, [worker, root, `${last + 1}`, "1000000"], { stdio: ["ignore", "pipe", "inherit"] });
    let said = "";
    child.stdout.on("data", (data) => (said += data));
    await once(child.stdout, "data");
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 150));
    child.kill("SIGKILL");
    await once(child, "close");
    const stored = said.split("\n").slice(0, -1).filter((line) => /^\d+$/.test(line)).map(Number).at(-1);
    last = await check(stored);
  }
  assert.ok(last > 25, `${last} rounds`);
});

test("one process at a time has a directory; one that let go or died does not", async () => {
  const store = await DirectoryStore.open(root);
  await assert.rejects(DirectoryStore.open(root), /another process has the directory open; if it is gone for certain, remove owner-1 /);
  const other = spawnSync(process.execPath, [worker, root, "0", "1"], { encoding: "utf8" });
  assert.match(other.stderr, /another process has the directory open/);
  await store.close();
  await assert.rejects(store.get(["a"]), /closed/);
  await assert.rejects(store.commit(put(["a", "1"])), /closed/);
  await store.close();
  assert.equal(work(0, 1).stored, 0);
  await (await DirectoryStore.open(root)).close();
});

test("of many processes that find a dead owner, one takes the directory", async () => {
  for (let round = 0; round < 3; round += 1) {
    assert.ok(work(0, 6, 50 + round).killed);
    const opened = await Promise.allSettled(Array.from({ length: 20 }, () => DirectoryStore.open(root)));
    const owners = opened.filter(({ status }) => status === "fulfilled");
    assert.equal(owners.length, 1);
    await owners[0].value.close();
    await rm(root, { recursive: true });
  }
  const children = Array.from({ length: 6 }, () => spawn(process.execPath, [worker, root, "0", "1000000"]));
  const outcomes = await Promise.all(
    children.map(async (child) => {
      await Promise.race([once(child.stdout, "data"), once(child, "close")]);
      return child.exitCode === null && child.signalCode === null;
    }),
  );
  assert.equal(outcomes.filter(Boolean).length, 1);
  for (const child of children) child.kill("SIGKILL");
  await Promise.all(children.filter((child) => child.exitCode === null).map((child) => once(child, "close")));
});

test("an owner on another host is not taken for dead", async () => {
  await (await DirectoryStore.open(root)).close();
  const owner = JSON.parse(await readFile(path.join(root, "owner-1"), "utf8"));
  delete owner.released;
  await writeFile(path.join(root, "owner-1"), JSON.stringify({ ...owner, host: `not-${hostname()}` }));
  await assert.rejects(DirectoryStore.open(root), /remove owner-1 /);
  // The id of a process that lives by now, but is another one.
  await writeFile(path.join(root, "owner-1"), JSON.stringify({ ...owner, started: "1" }));
  await (await DirectoryStore.open(root)).close();
});

test("a directory that holds something else is refused, and left as it was", async () => {
  await mkdir(root);
  await writeFile(path.join(root, "a.txt"), "a");
  await assert.rejects(DirectoryStore.open(root), /not empty/);
  assert.deepEqual(await readdir(root), ["a.txt"]);
  await rm(root, { recursive: true });
  await mkdir(path.join(parent, "real"));
  await symlink(path.join(parent, "real"), root);
  await assert.rejects(DirectoryStore.open(root), /symbolic link/);
});

test("the command's directory is refused here, and this one there", async () => {
  await writeFile(path.join(parent, "sessions.json"), "{}");
  const sweep = () => spawnSync(process.env.NATIVE, ["sweep", "--data", root], { encoding: "utf8" });
  await (await DirectoryStore.open(root)).close();
  const refused = sweep();
  assert.notEqual(refused.status, 0);
  assert.match(refused.stderr, /npm package/);
  assert.ok(!(await readdir(root)).includes("commits"));
  await rm(root, { recursive: true });
  await mkdir(root);
  const created = sweep();
  assert.equal(created.status, 0, created.stderr);
  await assert.rejects(DirectoryStore.open(root), /the command bounded-evidence/);
});

test("a file that is not what was written is refused", async () => {
  const damage = {
    shortened: (file) => truncate(file, 100),
    empty: (file) => truncate(file, 0),
    longer: (file) => appendFile(file, "x"),
    altered: async (file) => {
      const content = await readFile(file);
      content[70] ^= 1;
      await writeFile(file, content);
    },
  };
  for (const [name, alter] of Object.entries(damage)) {
    await rm(root, { recursive: true, force: true });
    const store = await DirectoryStore.open(root);
    await store.commit(put(["key", "value"]));
    await store.close();
    await alter(path.join(root, "batches", "0000000000000001"));
    await assert.rejects(DirectoryStore.open(root), /not what was written/, name);
  }
});
