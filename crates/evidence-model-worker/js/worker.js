// The script of the Web Worker: it loads the wasm, which then listens to the
// page and says "ready". The page starts it as a module:
//
//   const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
//
// and talks to it in the messages that src/protocol.rs describes.
import init from "./evidence_model_worker.js";

init().catch((error) => {
  self.postMessage({ type: "error", message: `the model worker cannot start: ${error}` });
});
