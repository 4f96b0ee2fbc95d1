/**
 * What only Node has: a store in a directory.
 *
 * @packageDocumentation
 */

export { DirectoryStore } from "./directory.js";
