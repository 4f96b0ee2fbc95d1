// How the page behaves inside of another one, where bounded-evidence-playground.js has put it: it takes
// its theme and its parts from there, and tells how high it is. Nothing of the other page is read, and
// nothing is told but the height.

{
  const TYPE = "bounded-evidence-playground";
  const root = document.documentElement;
  const parameters = new URLSearchParams(location.search);

  const setTheme = (theme) => {
    if (theme === "light" || theme === "dark") {
      root.dataset.theme = theme;
    }
  };

  if (parameters.has("embedded") && window.parent !== window) {
    root.dataset.embedded = parameters.get("mode") ?? "";
    setTheme(parameters.get("theme"));
    window.addEventListener("message", (event) => {
      if (event.source === window.parent && event.data?.type === TYPE) {
        setTheme(event.data.theme);
      }
    });
    const tell = () => {
      const height = Math.ceil(root.getBoundingClientRect().height);
      // Who embeds this page is not known to it; anybody may know how high it is.
      window.parent.postMessage({ type: TYPE, height }, "*");
    };
    new ResizeObserver(tell).observe(root);
  }
}
