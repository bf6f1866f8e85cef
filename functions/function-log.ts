/**
 * What a function writes: each line is out before anything else happens, since what waits in memory of a
 * frozen process may never be written. Its lines are those of the server's log, and pass no stream of Node's own, which
 * would be a part of a cold start.
 */
import { writeSync } from "node:fs";
import type { Log, LogLevel } from "@toolyard/core/ports/log";
import { isWritten, toLogLine } from "./log-fields.ts";

export const standardOutput = 1;
const standardError = 2;

/** @param write takes one line with its end; default: standard error */
export function createFunctionLog(
  level: LogLevel,
  write: (line: string) => void = (line) => writeLine(standardError, line),
): Log {
  return {
    log(at, message, fields = {}) {
      if (isWritten(at, level)) write(toLogLine(at, message, fields));
    },
  };
}

/** @param line with its end */
export function writeLine(to: number, line: string): void {
  for (let rest: Uint8Array = Buffer.from(line); rest.length > 0;) {
    try {
      rest = rest.subarray(writeSync(to, rest));
    } catch (error) {
      // The pipe is full and its reader will be back; any other trouble leaves nobody to tell.
      if (!(error instanceof Error && "code" in error && error.code === "EAGAIN")) return;
    }
  }
}
