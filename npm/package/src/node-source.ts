import { readFile } from "node:fs/promises";

import type { Loader, WasmSource } from "./load.js";

/** Reads addresses of files, and this one where no source is given. */
export function fromDisk(ownFile: URL): Loader["resolve"] {
  return (source: WasmSource = ownFile) => {
    const isAddress = typeof source === "string" || source instanceof URL;
    return isAddress && /^file:/i.test(String(source)) ? readFile(new URL(source)) : source;
  };
}
