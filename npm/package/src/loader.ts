import { Loader } from "./load.js";
import * as build from "./wasm/evidence_wasm.js";

/** Loads the build without processes. */
export const loader = new Loader(build);
