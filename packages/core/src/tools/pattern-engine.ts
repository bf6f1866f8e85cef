/**
 * The engine of patterns. Asked for by a function, because the bundles of functions have another module in
 * this place (functions/build/functions.ts): it reads the engine, 150 KB, when somebody has a pattern. That may not
 * wait, since schemas and searches compile patterns where nothing does.
 */
import * as re2 from "re2js";

export function engine(): typeof re2 {
  return re2;
}
