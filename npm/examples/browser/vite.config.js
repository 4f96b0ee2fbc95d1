export default {
  // The page works from any path.
  base: "./",
  worker: { format: "es" },
};
