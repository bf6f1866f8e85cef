/**
 * How many cases a property is tried with where it does not say so itself: few, so that the quick suite stays quick, since
 * every run tries others; in long runs so many that what is rare is met.
 */
import fc from "fast-check";
import { isLong } from "./long.ts";

fc.configureGlobal({ numRuns: isLong ? 1_000 : 25 });
