export default {
  // The page works from any path.
  base: "./",
  // The WebAssembly stands beside the script that loads it, where Vite finds it when it leaves the
  // package as it is.
  optimizeDeps: { exclude: ["bounded-evidence"] },
  worker: { format: "es" },
};
