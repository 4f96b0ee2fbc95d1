// The script of the model's Web Worker: it loads the WebAssembly beside it, which then listens to the
// page and says "ready". A page starts it as a module:
//
//   new Worker("evidence-model-worker/worker.js", { type: "module" })
//
// and speaks to it in the messages of evidence-model-protocol.
import init from "./evidence_model_worker.js";

let broken = false;

/** Tells the page, once, that nothing more will come. */
self.failed = (message) => {
  if (!broken) {
    broken = true;
    self.postMessage({ type: "failed", message });
  }
};

// A panic has told what happened before it comes here; used-up memory has not.
const broke = (event) => {
  event.preventDefault();
  self.failed(
    `the model worker broke (${event.message ?? event.reason}), most likely because its memory is used up; ` +
      "load the model again, or a smaller one",
  );
};
self.addEventListener("error", broke);
self.addEventListener("unhandledrejection", broke);

// What a page asks before the WebAssembly listens.
const early = [];
self.onmessage = (event) => early.push(event);

init().then(() => early.forEach((event) => self.onmessage(event)), (error) => {
  self.failed(`the model worker cannot start (${error}); reload the page`);
});
