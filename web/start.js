// Starts the page's WebAssembly. The Content-Security-Policy allows no inline script, so that this
// file does what trunk's own would: it takes the two addresses from the preloads that trunk writes.

const starting = document.getElementById("starting");
try {
  const code = document.querySelector('link[rel="modulepreload"]').href;
  const wasm = document.querySelector('link[rel="preload"][as="fetch"]').href;
  const { default: start } = await import(code);
  await start({ module_or_path: wasm });
  starting.remove();
  // Without it the page works all the same, but for the addresses of artifacts and for going offline.
  navigator.serviceWorker
    ?.register("service-worker.js", { updateViaCache: "none" })
    .catch((error) => console.warn(`The page's worker could not be registered: ${error.message}`));
} catch (error) {
  starting.setAttribute("role", "alert");
  starting.textContent =
    `The page could not start: ${error.message}. ` +
    "Reload it; if that does not help, use a current browser with WebAssembly enabled.";
  throw error;
}
