/**
 * The JSON of a value. JSON.stringify changes what JSON cannot hold (NaN becomes null, -0 becomes 0, a Map
 * becomes {}) or leaves it out; here it throws. A member that is undefined is one that is not there.
 */
export const exactJson = (value) =>
  JSON.stringify(value, function (name, value) {
    const refuse = (what) => {
      throw new TypeError(`${name || "it"} is ${what}`);
    };
    if (typeof value === "function" || typeof value === "symbol") refuse(`a ${typeof value}`);
    if (typeof value === "number" && (!Number.isFinite(value) || Object.is(value, -0))) {
      refuse(Object.is(value, -0) ? "-0" : value);
    }
    if (value === undefined && Array.isArray(this)) refuse(value);
    if (typeof value === "object" && value && !Array.isArray(value)) {
      // Those of other realms have other prototypes; that of a plain object has none itself.
      const prototype = Object.getPrototypeOf(value);
      if (prototype && Object.getPrototypeOf(prototype)) refuse("no plain object");
    }
    return value;
  });
