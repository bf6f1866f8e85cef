/**
 * Programs that suites start as processes of their own: bundles, where the sources would cost each start five
 * seconds of a core. Made by build-programs.ts.
 */
import { join } from "node:path";

const cache = join(import.meta.dirname, "../../node_modules/.cache");

export const serverDirectory = join(cache, "server-program");
export const serverProgram = join(serverDirectory, "bin/server.mjs");
export const nodeDirectory = join(cache, "node-program");
export const nodeProgram = join(nodeDirectory, "bin/node.mjs");
