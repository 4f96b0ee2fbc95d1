// Sets the remembered theme before the first paint. Without one, the system's is used.

try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") {
    document.documentElement.dataset.theme = theme;
  }
} catch {
  // The browser remembers nothing here.
}
