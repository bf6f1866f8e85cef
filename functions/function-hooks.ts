/**
 * What a function's core has besides its settings: nothing. The kill suite builds the functions with
 * another module in this place, which stops them at the points where a process may die.
 */
import type { Home } from "./compose.ts";

export const functionHooks: Pick<Home, "reach" | "timing"> = {};
