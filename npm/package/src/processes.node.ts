// The entry for Node, which reads the WebAssembly from the disk: its fetch() takes no file.

import { loader } from "./processes-loader.js";
import { fromDisk } from "./node-source.js";

loader.resolve = fromDisk(new URL("./wasm/evidence_wasm_processes_bg.wasm", import.meta.url));

export * from "./processes.js";
