// Whose directory it is.
//
// Node has no file locks that end with their process. So the owner stands in a file `owner-<number>`,
// and that of the highest number counts. Whoever finds that it has let go, or is dead, creates the next
// number: of several who do so one succeeds, because a link is never created over another. The highest
// file is never removed, so that a number does not come back: who was asleep since it looked, and
// creates a number that others have left behind, then sees theirs and steps back.

import { link, open, readFile, readdir, rename, unlink } from "node:fs/promises";
import { hostname } from "node:os";
import path from "node:path";

/** Who owns a directory, as its file says. */
interface Owner {
  host: string;
  /** Of the host, where it has one: none of an earlier boot lives. */
  boot: string | null;
  pid: number;
  /** When the process was started, where that can be seen: ids are used again. */
  started: string | null;
  released?: true;
}

/** A directory that is this process's own until it is released. */
export class Ownership {
  readonly #file: string;
  readonly #owner: Owner;

  private constructor(file: string, owner: Owner) {
    this.#file = file;
    this.#owner = owner;
  }

  /** Takes a directory, or rejects when somebody has it. */
  static async take(root: string): Promise<Ownership> {
    const owner = await thisProcess();
    for (;;) {
      const highest = Math.max(0, ...(await numbers(root)));
      if (highest > 0 && (await isHeld(fileOf(root, highest)))) {
        throw new Error(
          `another process has the directory open; if it is gone for certain, remove ${path.basename(fileOf(root, highest))} there`,
        );
      }
      const file = fileOf(root, highest + 1);
      if (!(await create(file, owner))) continue;
      const others = await numbers(root);
      if (Math.max(...others) > highest + 1) {
        await remove(file);
        continue;
      }
      for (const name of await readdir(root)) if (isLeftBehind(name, highest)) await remove(path.join(root, name));
      return new Ownership(file, owner);
    }
  }

  /** Lets go. The file stays, and says so. */
  async release(): Promise<void> {
    const temporary = temporaryFor(this.#file);
    await write(temporary, { ...this.#owner, released: true });
    await rename(temporary, this.#file);
  }
}

/** Whether a file is of an owner before, or of somebody who wanted to be one and cannot any more. */
function isLeftBehind(name: string, highest: number): boolean {
  const [, owner, temporary] = /^(?:owner-(\d+)|\.owner-(\d+)-.*\.tmp)$/.exec(name) ?? [];
  return Number(owner) <= highest || Number(temporary) <= highest + 1;
}

function fileOf(root: string, number: number): string {
  return path.join(root, `owner-${number}`);
}

async function numbers(root: string): Promise<number[]> {
  const names = await readdir(root);
  return names.flatMap((name) => /^owner-(\d{1,15})$/.exec(name)?.slice(1).map(Number) ?? []);
}

/** Whether an owner lives and has not let go. One that cannot be seen from here is taken for alive. */
async function isHeld(file: string): Promise<boolean> {
  let owner: Owner;
  try {
    owner = JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    // Removed by a later owner, whose file is the next to be looked at. What nobody wrote is nobody's.
    return (error as NodeJS.ErrnoException).code !== "ENOENT" && !(error instanceof SyntaxError);
  }
  if (owner.released) return false;
  if (owner.host !== hostname()) return true;
  if (owner.boot !== (await bootOfHost())) return false;
  try {
    process.kill(owner.pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
  }
  return owner.started === (await startOf(owner.pid));
}

/** Creates a file with all of its content, unless there is one. */
async function create(file: string, owner: Owner): Promise<boolean> {
  const temporary = temporaryFor(file);
  await write(temporary, owner);
  try {
    await link(temporary, file);
    return true;
  } catch (error) {
    // There is one; or there was, and its owner has removed what others had begun.
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" || code === "ENOENT") return false;
    throw error;
  } finally {
    await remove(temporary);
  }
}

async function remove(file: string): Promise<void> {
  await unlink(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
  });
}

async function write(file: string, owner: Owner): Promise<void> {
  const handle = await open(file, "w", 0o600);
  try {
    await handle.writeFile(JSON.stringify(owner));
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function temporaryFor(file: string): string {
  return path.join(path.dirname(file), `.${path.basename(file)}-${crypto.randomUUID()}.tmp`);
}

async function thisProcess(): Promise<Owner> {
  const [boot, started] = await Promise.all([bootOfHost(), startOf(process.pid)]);
  return { host: hostname(), boot, pid: process.pid, started };
}

/** Linux's; other systems tell none. */
function bootOfHost(): Promise<string | null> {
  return readFile("/proc/sys/kernel/random/boot_id", "utf8").catch(() => null);
}

/** The 22nd field of what Linux says of a process; the second may hold spaces and parentheses. */
async function startOf(pid: number): Promise<string | null> {
  const line = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  return line.slice(line.lastIndexOf(")") + 2).split(" ")[19] ?? null;
}
