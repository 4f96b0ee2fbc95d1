// The element <bounded-evidence-playground>: the page that lies beside this file, inside of another
// page. One tag is all:
//
//   <script src="https://…/bounded-evidence-playground.js" defer></script>
//   <bounded-evidence-playground sample="git-merge.log" mode="run"></bounded-evidence-playground>
//
// It is a frame over the built page, so that neither page's styles, scripts or keys reach the other's.
// A classic script, because only such a one can be taken from a host that sends no CORS headers.

(() => {
  const NAME = "bounded-evidence-playground";
  const PAGE = new URL("./", document.currentScript.src);
  /** What the page takes from its address as it is. */
  const PARAMETERS = ["sample", "script", "limits", "contract", "mode"];
  const THEME = "theme";
  /** Static hosts answer longer addresses with an error. */
  const MAX_ADDRESS_LENGTH = 8000;

  const styles = new CSSStyleSheet();
  styles.replaceSync(`
    :host { display: block; }
    :host([hidden]) { display: none; }
    iframe { display: block; box-sizing: border-box; width: 100%; height: 32rem; border: 0; color-scheme: normal; }
    p { display: grid; place-items: center; height: 32rem; margin: 0; }
    p, iframe { border: 1px solid color-mix(in srgb, currentcolor 25%, transparent); border-radius: 6px; }
  `);

  class BoundedEvidencePlayground extends HTMLElement {
    static observedAttributes = [...PARAMETERS, THEME];

    #root = this.attachShadow({ mode: "open" });
    #frame;
    /** Whether the frame's page is there and has said something. */
    #heard = false;
    #changed = false;
    #listening;
    /** It loads when it is seen, and not before. */
    #seen = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) {
        this.#seen.disconnect();
        this.#load();
      }
    });
    /** A page changes its theme by an attribute of its root, as a rule. */
    #themed = new MutationObserver(() => this.#tellTheme());

    constructor() {
      super();
      this.#root.adoptedStyleSheets = [styles];
    }

    connectedCallback() {
      this.#say("The playground loads when it is seen.");
      this.#listening = new AbortController();
      const { signal } = this.#listening;
      window.addEventListener("message", (event) => this.#hear(event), { signal });
      const system = matchMedia("(prefers-color-scheme: dark)");
      system.addEventListener("change", () => this.#tellTheme(), { signal });
      this.#themed.observe(document.documentElement, { attributes: true });
      this.#seen.observe(this);
    }

    disconnectedCallback() {
      this.#listening.abort();
      this.#themed.disconnect();
      this.#seen.disconnect();
      this.#frame = undefined;
    }

    attributeChangedCallback(name, before, now) {
      if (!this.#frame || before === now) {
        return;
      }
      if (name === THEME) {
        this.#tellTheme();
        return;
      }
      // Attributes that are set one after another are one change.
      if (!this.#changed) {
        this.#changed = true;
        queueMicrotask(() => {
          this.#changed = false;
          if (this.isConnected) {
            this.#load();
          }
        });
      }
    }

    /** The page's address, with what it is asked for. */
    get #address() {
      const address = new URL(PAGE);
      address.searchParams.set("embedded", "");
      for (const name of PARAMETERS) {
        const value = this.getAttribute(name);
        if (value !== null) {
          address.searchParams.set(name, value);
        }
      }
      const theme = this.#theme;
      if (theme) {
        address.searchParams.set(THEME, theme);
      }
      return address.href;
    }

    /** "light" or "dark": the attribute's, or that of the page around; the system's where it has none. */
    get #theme() {
      const theme = this.getAttribute(THEME);
      if (theme === "light" || theme === "dark") {
        return theme;
      }
      const around = getComputedStyle(this).colorScheme.split(" ").filter((word) => word !== "only");
      if (around.length === 1 && (around[0] === "light" || around[0] === "dark")) {
        return around[0];
      }
      return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    }

    #load() {
      const address = this.#address;
      if (address.length > MAX_ADDRESS_LENGTH) {
        this.#say(`The attributes are too long: ${address.length} of at most ${MAX_ADDRESS_LENGTH} characters as an address. Shorten the script.`);
        return;
      }
      const frame = document.createElement("iframe");
      frame.title = "bounded-evidence: a playground";
      // A page of another origin may only write to the clipboard when it is let.
      frame.allow = "clipboard-read; clipboard-write";
      frame.src = address;
      this.#frame = frame;
      this.#heard = false;
      this.#root.replaceChildren(frame);
    }

    #say(text) {
      const paragraph = document.createElement("p");
      paragraph.textContent = text;
      this.#frame = undefined;
      this.#root.replaceChildren(paragraph);
    }

    #tellTheme() {
      if (this.#heard) {
        this.#frame?.contentWindow?.postMessage({ type: NAME, theme: this.#theme }, PAGE.origin);
      }
    }

    #hear(event) {
      const { source, origin, data } = event;
      if (!this.#frame || source !== this.#frame.contentWindow || origin !== PAGE.origin) {
        return;
      }
      if (data?.type === NAME && Number.isSafeInteger(data.height) && data.height > 0) {
        // The border is part of the frame's height.
        this.#frame.style.height = `${data.height + 2}px`;
        if (!this.#heard) {
          this.#heard = true;
          this.#tellTheme();
        }
      }
    }
  }

  // A page may have the tag twice.
  if (!customElements.get(NAME)) {
    customElements.define(NAME, BoundedEvidencePlayground);
  }
})();
