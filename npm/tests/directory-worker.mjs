// A process that is killed: commits batches to a directory and says which are stored.
//
// KILL_AT names the change of the disk before which it kills itself.

import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import process from "node:process";

const killAt = Number(process.env.KILL_AT ?? Infinity);
let changes = 0;
const beforeChange = (name) => {
  if (++changes === killAt) {
    fs.writeSync(1, `killed before ${name}\n`);
    process.kill(process.pid, "SIGKILL");
  }
};
/** Counts a function as a change of the disk; half of a write is done before the kill. */
const counted = (object, name) => {
  const original = object[name];
  object[name] = async function (...given) {
    beforeChange(name);
    return original.apply(this, given);
  };
};
for (const name of ["mkdir", "rename", "unlink", "link"]) counted(fs.promises, name);
const { open } = fs.promises;
let prepared = false;
fs.promises.open = async (file, flags, ...more) => {
  const isWrite = flags !== undefined && flags !== "r";
  if (isWrite) beforeChange("open");
  const handle = await open(file, flags, ...more);
  if (!prepared) {
    prepared = true;
    const handles = Object.getPrototypeOf(handle);
    counted(handles, "sync");
    const { writeFile } = handles;
    handles.writeFile = async function (data, ...more) {
      beforeChange("a write");
      const bytes = Buffer.from(data);
      await this.write(bytes, 0, bytes.length >> 1);
      beforeChange("the rest of a write");
      return writeFile.call(this, bytes.subarray(bytes.length >> 1), ...more);
    };
  }
  return handle;
};
syncBuiltinESMExports();

const { DirectoryStore } = await import("bounded-evidence/node");
const store = await DirectoryStore.open(process.argv[2]);
fs.writeSync(1, "open\n");
const [first, last] = process.argv.slice(3).map(Number);
for (let round = first; round < last; round += 1) {
  const value = Buffer.from(`${round}`.repeat(100 + (round % 7) * 1000));
  const previous = Buffer.from(`${round - 1}`);
  await store.commit({
    expect: [["counter", round === 0 ? undefined : previous]],
    put: [
      ["counter", Buffer.from(`${round}`)],
      [`left/${round}`, value],
      [`right/${round}`, value],
    ],
    // So that files become unneeded and are removed.
    delete: round >= 3 ? [`left/${round - 3}`, `right/${round - 3}`] : [],
  });
  fs.writeSync(1, `${round}\n`);
}
await store.close();
fs.writeSync(1, "done\n");
