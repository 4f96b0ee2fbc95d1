// Loads the WebAssembly, once.

import load from "./wasm/evidence_wasm.js";

/** Where the WebAssembly comes from: an address, a response, its bytes, or a compiled module. */
export type WasmSource = string | URL | Request | Response | Promise<Response> | BufferSource | WebAssembly.Module;

/** What is loaded when no source is given; wasm-bindgen's own choice is the file beside its script. */
let defaultSource: () => WasmSource | Promise<WasmSource> | undefined = () => undefined;

/** Has another source loaded when none is given. */
export function setDefaultSource(source: () => WasmSource | Promise<WasmSource>): void {
  defaultSource = source;
}

let loading: Promise<void> | undefined;

/**
 * Loads the WebAssembly. The first call decides from where, later ones wait for it; one that failed
 * may be repeated.
 *
 * `openStore` does it where nobody else did, so that it has to be called only to name another source
 * than the file in this package, and before the functions that need no store.
 *
 * @param source - An address, a response, bytes or a module: left out, the file in this package.
 */
export function init(source?: WasmSource): Promise<void> {
  loading ??= start(source).catch((error: unknown) => {
    loading = undefined;
    throw error;
  });
  return loading;
}

async function start(source?: WasmSource): Promise<void> {
  const chosen = await (source ?? defaultSource());
  await load(chosen === undefined ? undefined : { module_or_path: chosen });
}
