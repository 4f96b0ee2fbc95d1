import { Loader } from "./load.js";
import * as build from "./wasm/evidence_wasm_processes.js";

/** Loads the build with processes. */
export const loader = new Loader(build);
