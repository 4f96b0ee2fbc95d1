// Leaves out of the description what wasm-bindgen writes for itself: the module's raw exports, and how each
// class is freed.

import { Converter } from "typedoc";

const GENERATED = new Set(["InitInput", "InitOutput", "SyncInitInput", "free", "[dispose]"]);

/** Called by typedoc. */
export function load(application) {
  application.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    const all = Object.values(project.reflections);
    for (const reflection of all.filter(({ name }) => GENERATED.has(name))) {
      project.removeReflection(reflection);
    }
  });
}
