// The entry for Node, which reads the WebAssembly from the disk: its fetch() takes no file.

import { readFile } from "node:fs/promises";

import { loader } from "./processes-loader.js";

loader.defaultSource = () => readFile(new URL("./wasm/evidence_wasm_processes_bg.wasm", import.meta.url));

export * from "./processes.js";
