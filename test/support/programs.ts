/**
 * Programs that suites start as processes of their own: bundles, where the sources would cost each start five
 * seconds of a core. Made by build-programs.ts.
 */
import { join } from "node:path";

export const programsDirectory = join(import.meta.dirname, "../../node_modules/.cache/programs");
export const serverProgram = join(programsDirectory, "bin/server.mjs");
export const nodeProgram = join(programsDirectory, "bin/node.mjs");
