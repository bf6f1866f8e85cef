/** The log of the server form: lines of JSON, gathered for a moment. */
import { write } from "node:fs";
import type { Log, LogLevel } from "@toolyard/core/ports/log";
import { isWritten, toLogLine } from "./log-fields.ts";

export interface FlushableLog extends Log {
  /** Writes what is still in memory; before the process ends, which it does not hold up. */
  flush(): Promise<void>;
}

interface LogDestination {
  /** Takes one line with its end. */
  write(line: string): void;
  flush?(done: () => void): void;
}

/** A reader of the log that takes longer for the last lines has lost them. */
const flushWithinMs = 1_000;

export interface LogOptions {
  readonly level: LogLevel;
  /** Default: standard error, so that standard output stays for people. */
  readonly destination?: LogDestination;
}

export function createLog({ level, destination = toStandardError() }: LogOptions): FlushableLog {
  return {
    log(at, message, fields = {}) {
      if (isWritten(at, level)) destination.write(toLogLine(at, message, fields));
    },
    flush: () => flushed(destination),
  };
}

/** With nobody who reads at the other end of the pipe what is left is never written. */
function flushed(destination: LogDestination): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, flushWithinMs);
    const done = (): void => {
      clearTimeout(timer);
      resolve();
    };
    if (destination.flush === undefined) done();
    else destination.flush(done);
  });
}

/** What is gathered before it is written, in characters and milliseconds. */
const gathered = { length: 65_536, ms: 100 };
/** In characters: what nobody takes must not fill the memory instead. */
const mostKept = 8_388_608;
const standardError = 2;
/** Before a pipe is tried again that was full. */
const fullPipeMs = 100;

/**
 * A server gathers lines for a moment: a write for each would cost as much as a request. Where they cannot be written
 * (a full disk, nobody at the other end) they are lost and counted, and the server goes on: it must not end for its log.
 */
function toStandardError(): LogDestination {
  let lines: string[] = [];
  let length = 0;
  let lost = 0;
  let timer: NodeJS.Timeout | undefined;
  let isWriting = false;
  const waiting: (() => void)[] = [];

  const pass = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (isWriting) return;
    if (lines.length === 0) {
      for (const done of waiting.splice(0)) done();
      return;
    }
    isWriting = true;
    const count = lines.length;
    const told = lost;
    if (told > 0) lines.unshift(tellLost(told));
    const bytes = Buffer.from(lines.join(""), "utf8");
    lines = [];
    length = 0;
    writeAll(bytes, (error) => {
      isWriting = false;
      lost += error === undefined ? -told : count;
      if (waiting.length > 0 || length >= gathered.length) pass();
      else if (lines.length > 0) passSoon();
    });
  };
  const passSoon = (): void => {
    timer ??= setTimeout(pass, gathered.ms).unref();
  };
  return {
    write(line) {
      if (length > mostKept) {
        lost += 1;
        return;
      }
      lines.push(line);
      length += line.length;
      if (length >= gathered.length) pass();
      else passSoon();
    },
    flush(done) {
      waiting.push(done);
      pass();
    },
  };
}

/** @param done with what kept the rest from being written */
function writeAll(bytes: Buffer, done: (error: Error | undefined) => void): void {
  write(standardError, bytes, (error, written) => {
    if (error?.code === "EAGAIN") setTimeout(writeAll, fullPipeMs, bytes, done);
    else if (error !== null) done(error);
    else if (written < bytes.length) writeAll(bytes.subarray(written), done);
    else done(undefined);
  });
}

/** Begins a line of its own: the one before may have been cut off. */
function tellLost(count: number): string {
  return `\n${toLogLine("warn", "lines of the log could not be written", { count })}`;
}
