// A store in a directory.
//
//   <root>/npm-store.json       says that the directory is one, and of which form
//   <root>/owner-<number>       whose directory it is: the highest number's (owner.ts)
//   <root>/batches/<16 digits>  one immutable file for each batch
//   <root>/batches/.<…>.tmp     a batch that is being written
//
// A batch is written to a temporary file, flushed, and renamed to the next number: the rename is the
// commit. A process that is killed before it leaves a temporary file, which the next owner removes;
// one that is killed after it has committed. There is nothing to repair.
//
// A batch file is a line with the digest of the next, a line of JSON that says what the batch does, and
// the values. The state is what the files say in the order of their numbers; an index of it is kept in
// memory. Small files are merged by committing their values again, and files without current values are
// removed.

import { createHash } from "node:crypto";
import { constants, type FileHandle, lstat, mkdir, open, readdir, rename, unlink } from "node:fs/promises";
import path from "node:path";

import { Ownership } from "./owner.js";
import type { Store, StoreBatch } from "./wasm/evidence_wasm.js";

const MARKER = "npm-store.json";
const MARKER_TEXT = '{"format":"bounded-evidence npm store","version":1}\n';
const TEMPORARY = /^\..*\.tmp$/;
const BATCH = /^\d{16}$/;

/** Above this many small files a commit merges them. */
const MERGE_ABOVE = 64;
/** Files with fewer bytes of values than this are small. */
const SMALL_BYTES = 256 * 1024;

/** The line of a batch file that says what the batch does. */
interface Header {
  put: [key: string, byteCount: number][];
  delete: string[];
}

/** A batch file, and what stands in it. */
interface BatchFile {
  number: number;
  header: Header;
  /** Where the values begin. */
  start: number;
  /** How many of its values are current. */
  currentCount: number;
}

/** Where a current value stands. */
interface Place {
  file: BatchFile;
  start: number;
  end: number;
}

/** What a store throws; `openStore` knows the codes. */
class StoreFailure extends Error {
  constructor(
    readonly code: "conflict" | "exhausted" | "unavailable",
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/**
 * Keeps everything in one directory, for `openStore({ kind: "custom", store })`. What a commit has
 * stored is there after the process or the machine has died at any moment.
 *
 * One process at a time can have a directory open. One that died lets go of it; on another host, or
 * where that cannot be seen, the refusal says which file to remove. The directory is not one that
 * `bounded-evidence serve --data` uses: each refuses the other's.
 */
export class DirectoryStore implements Store {
  readonly #root: string;
  readonly #ownership: Ownership;
  readonly #values = new Map<string, Place>();
  readonly #files = new Map<number, BatchFile>();
  #next = 1;
  /** Why nothing works any more. */
  #ended: StoreFailure | undefined;
  /** The commits, one after the other. */
  #last: Promise<unknown> = Promise.resolve();

  private constructor(root: string, ownership: Ownership) {
    this.#root = root;
    this.#ownership = ownership;
  }

  /**
   * Opens a directory, creating it where there is none.
   *
   * Rejects when another process has it open, when it is a symbolic link, when it holds anything but
   * such a store, and when a file in it is not what was written.
   *
   * @param root - The directory.
   */
  static async open(root: string): Promise<DirectoryStore> {
    const directory = path.resolve(root);
    await prepare(directory);
    const store = new DirectoryStore(directory, await Ownership.take(directory));
    try {
      await store.#load();
    } catch (error) {
      await store.#ownership.release();
      throw error;
    }
    return store;
  }

  /** The values under these keys, as of one moment. */
  async get(keys: string[]): Promise<(Uint8Array | undefined)[]> {
    for (;;) {
      this.#refuseWhenEnded();
      const places = keys.map((key) => this.#values.get(key));
      try {
        return await this.#read(places);
      } catch (error) {
        // A file that was merged away in between: its values stand elsewhere now.
        const gone = places.some((place) => place && !this.#files.has(place.file.number));
        if (!gone) throw new StoreFailure("unavailable", "a file of the store cannot be read", { cause: error });
      }
    }
  }

  /** All keys that begin with the prefix. */
  async list(prefix: string): Promise<string[]> {
    this.#refuseWhenEnded();
    return [...this.#values.keys()].filter((key) => key.startsWith(prefix));
  }

  /** Applies the whole batch, or nothing of it and throws. */
  commit(batch: StoreBatch): Promise<void> {
    return this.#inTurn(async () => {
      this.#refuseWhenEnded();
      await this.#expect(batch.expect);
      await this.#write(batch);
      await this.#tidy();
    });
  }

  /** Lets go of the directory, once what has begun is done. Nothing works afterwards. */
  close(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#ended?.message === CLOSED) return;
      this.#ended = new StoreFailure("unavailable", CLOSED);
      await this.#ownership.release();
    });
  }

  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #inTurn<T>(action: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(action);
    this.#last = turn.catch(() => undefined);
    return turn;
  }

  #refuseWhenEnded(): void {
    if (this.#ended) throw this.#ended;
  }

  get #batches(): string {
    return path.join(this.#root, "batches");
  }

  #pathOf(number: number): string {
    return path.join(this.#batches, String(number).padStart(16, "0"));
  }

  async #load(): Promise<void> {
    const names = await readdir(this.#batches);
    for (const name of names.filter((name) => TEMPORARY.test(name))) await unlink(path.join(this.#batches, name));
    for (const name of names.filter((name) => BATCH.test(name)).sort()) {
      const file = await readHeader(path.join(this.#batches, name), Number(name));
      this.#apply(file);
    }
  }

  #apply(file: BatchFile): void {
    for (const key of file.header.delete) this.#forget(key);
    let { start } = file;
    for (const [key, byteCount] of file.header.put) {
      this.#forget(key);
      this.#values.set(key, { file, start, end: start + byteCount });
      file.currentCount += 1;
      start += byteCount;
    }
    this.#files.set(file.number, file);
    this.#next = Math.max(this.#next, file.number + 1);
  }

  #forget(key: string): void {
    const place = this.#values.get(key);
    if (!place) return;
    place.file.currentCount -= 1;
    this.#values.delete(key);
  }

  /** Reads values; those of one file by one handle. */
  async #read(places: (Place | undefined)[]): Promise<(Uint8Array | undefined)[]> {
    const handles = new Map<number, FileHandle>();
    try {
      const values: (Uint8Array | undefined)[] = [];
      for (const place of places) {
        if (!place) {
          values.push(undefined);
          continue;
        }
        let handle = handles.get(place.file.number);
        if (!handle) {
          handle = await open(this.#pathOf(place.file.number));
          handles.set(place.file.number, handle);
        }
        values.push(await readExactly(handle, place.start, place.end - place.start));
      }
      return values;
    } finally {
      for (const handle of handles.values()) await handle.close();
    }
  }

  async #expect(expected: StoreBatch["expect"]): Promise<void> {
    const found = await this.get(expected.map(([key]) => key));
    for (const [index, [, value]] of expected.entries()) {
      const other = found[index];
      const same = value && other ? Buffer.compare(value, other) === 0 : value === other;
      if (!same) throw new StoreFailure("conflict", "a value is not the expected one any more");
    }
  }

  async #write(batch: Pick<StoreBatch, "put" | "delete">): Promise<void> {
    const header: Header = { put: batch.put.map(([key, value]) => [key, value.length]), delete: batch.delete };
    const line = `${JSON.stringify(header)}\n`;
    const start = Buffer.from(`${digest(line)}\n${line}`);
    const number = this.#next;
    const temporary = path.join(this.#batches, `.${number}.tmp`);
    try {
      await writeDurably(temporary, [start, ...batch.put.map(([, value]) => value)]);
    } catch (error) {
      await unlink(temporary).catch(() => undefined);
      throw failureOf(error);
    }
    try {
      await rename(temporary, this.#pathOf(number));
      await syncDirectory(this.#batches);
    } catch (error) {
      // Whether the batch is there is for the next owner to see.
      this.#ended = new StoreFailure("unavailable", "a write to the disk failed; open the directory again", {
        cause: error,
      });
      throw this.#ended;
    }
    this.#apply({ number, header, start: start.length, currentCount: 0 });
  }

  /** Merges small files when there are many, and removes files that nothing needs. */
  async #tidy(): Promise<void> {
    const files = [...this.#files.values()];
    const small = files.filter((file) => file.currentCount > 0 && bytesOf(file) < SMALL_BYTES);
    try {
      if (small.length > MERGE_ABOVE) await this.#merge(new Set(small));
      if (files.some((file) => file.currentCount === 0)) await this.#removeUnneeded();
    } catch {
      // The caller's batch is stored. What is left to tidy is there at the next commit.
    }
  }

  async #merge(files: Set<BatchFile>): Promise<void> {
    const current = [...this.#values].filter(([, { file }]) => files.has(file));
    const values = await this.#read(current.map(([, place]) => place));
    await this.#write({
      put: current.map(([key], index) => [key, values[index] as Uint8Array]),
      delete: [],
    });
  }

  /**
   * A file is not needed when none of its values is current and no older file has a value that it
   * deletes, which would be back without it. So those that go at the same time need not go in an order
   * that the disk keeps.
   */
  async #removeUnneeded(): Promise<void> {
    const older = new Set<string>();
    const unneeded: BatchFile[] = [];
    for (const file of [...this.#files.values()].sort((one, other) => one.number - other.number)) {
      const hides = file.header.delete.some((key) => older.has(key));
      if (file.currentCount === 0 && !hides) unneeded.push(file);
      for (const [key] of file.header.put) older.add(key);
    }
    for (const file of unneeded) {
      // First, so that who reads meanwhile knows why there is no such file.
      this.#files.delete(file.number);
      try {
        await unlink(this.#pathOf(file.number));
      } catch (error) {
        this.#files.set(file.number, file);
        throw error;
      }
    }
    if (unneeded.length > 0) await syncDirectory(this.#batches);
  }
}

const CLOSED = "the directory was closed";

/** Makes sure that the directory is there, and that it is such a store or becomes one. */
async function prepare(root: string): Promise<void> {
  await mkdir(root, { recursive: true });
  if (!(await lstat(root)).isDirectory()) {
    throw new StoreFailure("unavailable", "the directory is a symbolic link; name the directory itself");
  }
  const names = (await readdir(root)).filter((name) => !TEMPORARY.test(name));
  if (!names.includes(MARKER)) {
    if (names.includes("commits")) {
      throw new StoreFailure(
        "unavailable",
        "the directory holds a store of the command bounded-evidence, whose files are others; name another directory",
      );
    }
    if (names.length > 0) {
      throw new StoreFailure("unavailable", "the directory is not empty and holds no store; name another directory");
    }
    const temporary = path.join(root, `.${process.pid}.tmp`);
    await writeDurably(temporary, [Buffer.from(MARKER_TEXT)]);
    await rename(temporary, path.join(root, MARKER));
  } else if ((await readText(path.join(root, MARKER))) !== MARKER_TEXT) {
    throw new StoreFailure("unavailable", "the directory holds a store of another version");
  }
  await mkdir(path.join(root, "batches"), { recursive: true });
  await syncDirectory(root);
}

async function readText(file: string): Promise<string> {
  const handle = await open(file);
  try {
    return await handle.readFile("utf8");
  } finally {
    await handle.close();
  }
}

/** What a batch file says of itself; one that is not what was written is refused. */
async function readHeader(file: string, number: number): Promise<BatchFile> {
  const handle = await open(file);
  try {
    const digestBytes = 65;
    const { size } = await handle.stat();
    let start = Buffer.alloc(0);
    let end = -1;
    for (let length = 4096; end < 0; length *= 8) {
      if (start.length === size) throw damaged();
      start = Buffer.from(await readExactly(handle, 0, Math.min(length, size)));
      end = start.indexOf("\n", digestBytes) + 1 || -1;
    }
    const line = start.subarray(digestBytes, end).toString();
    if (`${digest(line)}\n` !== start.subarray(0, digestBytes).toString()) throw damaged();
    const header = JSON.parse(line) as Header;
    const read = { number, header, start: end, currentCount: 0 };
    if (end + bytesOf(read) !== size) throw damaged();
    return read;
  } finally {
    await handle.close();
  }
}

function damaged(): StoreFailure {
  return new StoreFailure("unavailable", "a file of the store is not what was written; restore the directory");
}

function bytesOf({ header }: BatchFile): number {
  return header.put.reduce((sum, [, byteCount]) => sum + byteCount, 0);
}

/** Not of a contract: the file's own, so that one that was altered is seen. */
function digest(line: string): string {
  return createHash("sha256").update(line).digest("hex");
}

async function readExactly(handle: FileHandle, start: number, byteCount: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(byteCount);
  for (let done = 0; done < byteCount; ) {
    const { bytesRead } = await handle.read(bytes, done, byteCount - done, start + done);
    if (bytesRead === 0) throw damaged();
    done += bytesRead;
  }
  return bytes;
}

async function writeDurably(file: string, parts: Uint8Array[]): Promise<void> {
  const handle = await open(file, constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC, 0o600);
  try {
    // Each goes on where the last has ended.
    for (const part of parts) await handle.writeFile(part);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Makes the names in a directory durable. Windows does that by itself, and opens no directories. */
async function syncDirectory(directory: string): Promise<void> {
  if (process.platform === "win32") return;
  const handle = await open(directory);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function failureOf(error: unknown): StoreFailure {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOSPC" || code === "EDQUOT"
    ? new StoreFailure("exhausted", "the disk is full", { cause: error })
    : new StoreFailure("unavailable", "the disk cannot be written", { cause: error });
}
