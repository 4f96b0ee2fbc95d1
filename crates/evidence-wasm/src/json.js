/**
 * The JSON of a value. JSON.stringify changes what JSON cannot hold (NaN becomes null, -0 becomes 0)
 * or leaves it out; here it throws.
 */
export const exactJson = (value) =>
  JSON.stringify(value, (name, value) => {
    if (typeof value === "function" || typeof value === "symbol") {
      throw new TypeError(`${name || "it"} is a ${typeof value}`);
    }
    if (typeof value === "number" && (!Number.isFinite(value) || Object.is(value, -0))) {
      throw new TypeError(`${name || "it"} is ${Object.is(value, -0) ? "-0" : value}`);
    }
    return value;
  });
