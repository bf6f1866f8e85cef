/**
 * Lambda: runs one plugin for one call (design "AWS", stdio plugins). The function has tenant isolation
 * (`PER_TENANT`), a role that may write logs alone, and is invoked with response streaming. What it
 * promises, and what it does not: docs/plugin-box.md.
 */
import { stat } from "node:fs/promises";
import { readBoxEnvironment } from "../env.ts";
import { createFunctionLog } from "../function-log.ts";
import { streamed } from "../lambda-runtime.ts";
import { createPluginBox } from "./plugin-box.ts";

const environment = readBoxEnvironment();
const log = createFunctionLog(environment.logLevel);
const box = createPluginBox({ ...environment, log });

// The files of a process below /proc belong to root where other processes of its user may not look in.
if ((await stat("/proc/self/environ")).uid === process.getuid?.()) {
  log.log("warn", "plugins can look into this process: its `node` is not as the image's Dockerfile makes it");
}

/** @public The runtime calls it by name. */
export const handler = streamed((event, stream, context) => box.serve(event, stream, context));
