// Loads a build of the library, once.

/** Where the WebAssembly comes from: an address, a response, its bytes, or a compiled module. */
export type WasmSource = string | URL | Request | Response | Promise<Response> | BufferSource | WebAssembly.Module;

/** What of a build this package itself calls. */
interface Build
  extends Pick<typeof import("./wasm/evidence_wasm.js"), "EvidenceError" | "isArtifactPath" | "readToolSchema"> {
  /** Loads it; what that answers is each build's own. */
  default(options?: { module_or_path: WasmSource }): Promise<unknown>;
}

let current: Build | undefined;

/**
 * The build that was loaded last. Both have the same rules; whoever has a store of one has loaded it.
 */
export function library(): Build {
  if (!current) throw new Error("open a store first: it loads the WebAssembly");
  return current;
}

/** Loads one of the builds. */
export class Loader {
  readonly #build: Build;
  #loading: Promise<void> | undefined;

  /** What is loaded when no source is given; wasm-bindgen's own choice is the file beside its script. */
  defaultSource: () => WasmSource | Promise<WasmSource> | undefined = () => undefined;

  constructor(build: Build) {
    this.#build = build;
  }

  /** The first call decides from where, later ones wait for it; one that failed may be repeated. */
  init(source?: WasmSource): Promise<void> {
    this.#loading ??= this.#load(source).catch((error: unknown) => {
      this.#loading = undefined;
      throw error;
    });
    return this.#loading;
  }

  async #load(source?: WasmSource): Promise<void> {
    const chosen = await (source ?? this.defaultSource());
    await this.#build.default(chosen === undefined ? undefined : { module_or_path: chosen });
    current = this.#build;
  }
}
